"""Rows between subtasks and Spark: pads, gathering, back pressure."""

import threading
from collections.abc import Iterator

import pyarrow as pa

from cutwater.errors import ControlError
from cutwater.flow.envelope import Row, RowKind, from_exchange, pad_row, to_exchange
from cutwater.flow.ids import ChannelId
from cutwater.flow.seal import Seal
from cutwater.flow.transport import Emit
from cutwater.spark.transport import ExchangeBroken, ExchangeReader, ExchangeWriter, relay_rows
from cutwater.subtask.relay import Relay


def row(target: int, seq: int = 0, size: int = 10, channel: int = 0) -> Row:
    return Row(target, ChannelId(channel), RowKind.DATA, seq, 0, pa.py_buffer(b"x" * size))


def kinds(batches: Iterator[pa.RecordBatch]) -> list[tuple[int, RowKind]]:
    return [
        (target, RowKind(kind))
        for batch in batches
        for target, kind in zip(batch.column(0).to_pylist(), batch.column(2).to_pylist(), strict=True)
    ]


def test_rows_that_can_wait_get_no_pad() -> None:
    assert kinds(ExchangeWriter().batches(Emit((row(0), row(1)), urgent=False))) == [
        (0, RowKind.DATA),
        (1, RowKind.DATA),
    ]


def test_an_urgent_row_is_followed_by_a_pad_for_its_target_in_the_same_batch() -> None:
    batches = list(ExchangeWriter().batches(Emit((row(1),), urgent=True)))
    assert len(batches) == 1
    assert kinds(iter(batches)) == [(1, RowKind.DATA), (1, RowKind.PAD)]


def test_urgency_pads_every_target_whose_newest_row_is_still_behind() -> None:
    writer = ExchangeWriter()
    list(writer.batches(Emit((row(0), row(2)), urgent=False)))
    assert kinds(writer.batches(Emit((), urgent=True))) == [(0, RowKind.PAD), (2, RowKind.PAD)]


def test_nothing_is_sent_when_nothing_is_behind() -> None:
    writer = ExchangeWriter()
    list(writer.batches(Emit((row(0),), urgent=True)))
    assert list(writer.batches(Emit((), urgent=True))) == []


def test_large_rows_travel_alone_and_small_ones_together_in_order() -> None:
    rows = (row(0, 0), row(0, 1), row(0, 2, size=100_000), row(0, 3))
    batches = list(ExchangeWriter().batches(Emit(rows, urgent=False)))
    assert [batch.column(3).to_pylist() for batch in batches] == [[0, 1], [2], [3]]


def test_payloads_survive_the_exchange_form_alone_and_together() -> None:
    for rows in ([row(1, 5, 3)], [row(1, 5, 3), row(2, 6, 0)]):
        assert [(r.target, r.seq, r.payload.to_pybytes()) for r in from_exchange(to_exchange(rows))] == [
            (r.target, r.seq, r.payload.to_pybytes()) for r in rows
        ]


def test_a_relay_rewrites_targets_keeps_order_and_passes_urgency_on() -> None:
    relay = Relay({ChannelId(0): 4, ChannelId(1): 5})
    arriving = [to_exchange([row(9, 0)]), to_exchange([row(9, 0, channel=1)]), to_exchange([pad_row(9)])]
    assert kinds(relay_rows(iter(arriving), relay)) == [
        (4, RowKind.DATA),
        (5, RowKind.DATA),
        (4, RowKind.PAD),
        (5, RowKind.PAD),
    ]


class _Receiver:
    """Refuses each row once."""

    def __init__(self) -> None:
        self.taken: list[int] = []
        self._refused: set[int] = set()

    def offer(self, row: Row) -> bool:
        if row.seq not in self._refused:
            self._refused.add(row.seq)
            return False
        self.taken.append(row.seq)
        return True


def test_a_refused_row_is_offered_again_before_any_later_one() -> None:
    receiver, failures = _Receiver(), list[BaseException]()
    arriving = iter([to_exchange([row(0, 0), row(0, 1)]), to_exchange([row(0, 2)])])
    reader = ExchangeReader(arriving, receiver, threading.Condition(), failures.append)
    reader.start()
    reader.join(10)
    assert (receiver.taken, failures) == ([0, 1, 2], [])


def test_sealed_rows_reach_the_receiver_open() -> None:
    seal, receiver, failures = Seal(Seal.new_key()), _Receiver(), list[BaseException]()
    batches = list(ExchangeWriter(seal).batches(Emit((row(0, 0),), urgent=True)))
    reader = ExchangeReader(iter(batches), receiver, threading.Condition(), failures.append, seal)
    reader.start()
    reader.join(10)
    assert (receiver.taken, failures) == ([0], [])


def test_a_row_that_was_changed_on_the_way_fails_the_subtask() -> None:
    seal, failures = Seal(Seal.new_key()), list[BaseException]()
    reader = ExchangeReader(
        iter([to_exchange([row(0, 0, 40)])]), _Receiver(), threading.Condition(), failures.append, seal
    )
    reader.start()
    reader.join(10)
    assert [type(failure) for failure in failures] == [ControlError]


def test_an_exchange_that_breaks_is_told_apart_from_a_receiver_that_fails() -> None:
    """Behind the first stands another task's failure, which Spark reports; the second is this subtask's own."""

    def breaking() -> Iterator[pa.RecordBatch]:
        yield to_exchange([row(0, 0)])
        raise OSError("Connection reset by peer")

    class Full(_Receiver):
        def offer(self, row: Row) -> bool:
            raise OSError("No space left on device")

    failures = list[BaseException]()
    for arriving, receiver in ((breaking(), _Receiver()), (iter([to_exchange([row(0, 0)])]), Full())):
        reader = ExchangeReader(arriving, receiver, threading.Condition(), failures.append)
        reader.start()
        reader.join(10)
    assert [type(failure) for failure in failures] == [ExchangeBroken, OSError]
