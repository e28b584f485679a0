"""What Spark ships to the workers for one attempt. Travels in the closure, is never stored."""

from dataclasses import dataclass, field
from typing import cast

import cloudpickle  # type: ignore[import-untyped]  # ships no types

from cutwater.checkpoint.file_storage import FileStorage
from cutwater.checkpoint.layout import JobLayout
from cutwater.control.keys import WorkerKeys
from cutwater.errors import ConfigError
from cutwater.flow.ids import Attempt
from cutwater.graph.logical import Node
from cutwater.job.definition import JobDefinition


@dataclass(frozen=True)
class Blueprint:
    definition: JobDefinition
    attempt: Attempt
    incarnation: str
    address: str
    keys: WorkerKeys
    storage: FileStorage | None
    """None: state goes to the driver as attachments (memory storage)."""
    layout: JobLayout
    """Where in the storage the files of this job's checkpoints stand."""
    max_inline_state: int
    lease_seconds: float
    seal_key: bytes | None = field(default=None, repr=False)
    """Set when the user asked Spark for network encryption or authentication: payloads are sealed with it."""


def pack(blueprint: Blueprint) -> bytes:
    return cast(bytes, cloudpickle.dumps(blueprint))


def refuse_unshippable(definition: JobDefinition) -> None:
    """Before anything starts: ConfigError names the operator that cannot be sent to the workers."""
    for node in definition.plan.graph.nodes:
        _check_ships(node)


def _check_ships(node: Node) -> None:
    try:
        cloudpickle.dumps(node.body)
    except Exception as error:
        raise ConfigError(
            f"{node.name} (uid {node.uid!r}) cannot be sent to the workers: {error}. "
            f"Open connections, locks and files inside open(), not before the job starts."
        ) from error


def unpack(packed: bytes) -> Blueprint:
    return cast(Blueprint, cloudpickle.loads(packed))
