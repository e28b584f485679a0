"""CURVE keys, made anew for every attempt: an older attempt's workers cannot even connect.

Secrets never show in a repr, so they do not reach a log or a traceback by accident.
"""

from dataclasses import dataclass, field

import zmq
from zmq.utils import z85

from cutwater.errors import ControlError


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A CURVE key pair, z85-encoded as ZeroMQ takes it."""

    public: bytes
    secret: bytes = field(repr=False)

    def __post_init__(self) -> None:
        _require_key("public", self.public)
        _require_key("secret", self.secret)

    @classmethod
    def generate(cls) -> "KeyPair":
        public, secret = zmq.curve_keypair()
        return cls(public, secret)


@dataclass(frozen=True, slots=True)
class WorkerKeys:
    """What a worker needs, and no more: shipped in the closure, never stored."""

    server_public: bytes
    client: KeyPair

    def __post_init__(self) -> None:
        _require_key("server's public", self.server_public)


@dataclass(frozen=True, slots=True)
class AttemptKeys:
    """The driver's pair and the one pair that all workers of the attempt share."""

    driver: KeyPair
    workers: KeyPair

    @classmethod
    def generate(cls) -> "AttemptKeys":
        return cls(KeyPair.generate(), KeyPair.generate())

    def for_workers(self) -> WorkerKeys:
        """The driver's secret stays behind."""
        return WorkerKeys(self.driver.public, self.workers)


def _require_key(name: str, key: bytes) -> None:
    # The key itself is not named: it may be the secret one.
    try:
        well_formed = len(key) == 40 and len(z85.decode(key)) == 32
    except (KeyError, ValueError, TypeError):
        well_formed = False
    if not well_formed:
        raise ControlError(
            f"the {name} key is not a z85-encoded CURVE key of 40 bytes; make keys with AttemptKeys.generate()"
        )
