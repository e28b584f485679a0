"""Payloads that must not be read or changed on the way."""

from dataclasses import replace

import pyarrow as pa
import pytest

from cutwater.errors import ControlError
from cutwater.flow.envelope import Row, RowKind, pad_row
from cutwater.flow.ids import ChannelId
from cutwater.flow.seal import Seal

ROW = Row(3, ChannelId(7), RowKind.DATA, 11, 42, pa.py_buffer(b"the records"))


def test_a_sealed_row_is_unreadable_and_opens_to_what_it_was() -> None:
    seal = Seal(Seal.new_key())
    closed = seal.close(ROW)
    assert b"the records" not in closed.payload.to_pybytes()
    assert seal.open(closed).payload.to_pybytes() == b"the records"


def test_two_seals_of_one_row_differ() -> None:
    seal = Seal(Seal.new_key())
    assert seal.close(ROW).payload.to_pybytes() != seal.close(ROW).payload.to_pybytes()


def test_a_relay_may_send_a_sealed_row_to_another_target() -> None:
    seal = Seal(Seal.new_key())
    assert seal.open(replace(seal.close(ROW), target=9)).payload.to_pybytes() == b"the records"


@pytest.mark.parametrize(
    "change",
    [
        {"channel": ChannelId(8)},
        {"seq": 12},
        {"mark": 43},
        {"kind": RowKind.BARRIER},
        {"payload": pa.py_buffer(b"x" * 40)},
        {"payload": pa.py_buffer(b"")},
    ],
)
def test_a_changed_or_replayed_row_is_refused(change: dict[str, object]) -> None:
    seal = Seal(Seal.new_key())
    with pytest.raises(ControlError, match="channel"):
        seal.open(replace(seal.close(ROW), **change))


def test_another_attempts_key_opens_nothing() -> None:
    with pytest.raises(ControlError):
        Seal(Seal.new_key()).open(Seal(Seal.new_key()).close(ROW))


def test_pads_are_not_sealed() -> None:
    assert Seal(Seal.new_key()).close(pad_row(1)) == pad_row(1)
