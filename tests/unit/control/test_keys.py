"""Keys per attempt."""

import pickle

import pytest

from cutwater.control.keys import AttemptKeys, KeyPair
from cutwater.errors import ControlError


def test_every_attempt_has_keys_of_its_own() -> None:
    first, second = AttemptKeys.generate(), AttemptKeys.generate()
    parts = [pair.secret for keys in (first, second) for pair in (keys.driver, keys.workers)]
    assert len(set(parts)) == 4


def test_secrets_show_in_no_repr() -> None:
    keys = AttemptKeys.generate()
    shown = f"{keys} {keys!r} {keys.for_workers()!r} {keys.driver!r}"
    assert keys.driver.public.decode() in shown
    assert keys.driver.secret.decode() not in shown
    assert keys.workers.secret.decode() not in shown


def test_workers_get_no_secret_of_the_driver() -> None:
    keys = AttemptKeys.generate()
    shipped = pickle.dumps(keys.for_workers())
    assert keys.workers.secret in shipped
    assert keys.driver.secret not in shipped
    assert pickle.loads(shipped) == keys.for_workers()  # noqa: S301


@pytest.mark.parametrize("damage", [b"", b"too short", b"\x00" * 40, b"~" * 40])
def test_a_key_that_is_none_is_refused_without_showing_it(damage: bytes) -> None:
    good = KeyPair.generate()
    with pytest.raises(ControlError, match="the secret key is not a z85-encoded CURVE key") as refusal:
        KeyPair(good.public, damage)
    assert damage.decode() == "" or damage.decode() not in str(refusal.value)
