"""What leaves a subtask: routed, gathered into payloads, numbered without gaps."""

from collections import defaultdict

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutwater.flow.envelope import Row, RowKind, read_barrier, read_data
from cutwater.flow.hashing import hash_columns, key_groups
from cutwater.flow.ids import ChannelId, CheckpointId
from cutwater.flow.watermarks import MIN_WATERMARK
from cutwater.graph.logical import Exchange
from cutwater.graph.plan import OutputRoute
from cutwater.subtask.limits import FlowLimits
from cutwater.subtask.outputs import Outputs

SCHEMA = pa.schema([("k", pa.int64())])


def outputs(
    exchange: Exchange,
    width: int,
    *,
    payload_bytes: int = 1 << 20,
    least_payload_bytes: int = 1 << 20,
    subtask: int = 0,
) -> Outputs:
    channels = tuple(ChannelId(10 + index) for index in range(width))
    route = OutputRoute(0, "op", None, exchange, ("k",), channels, tuple(range(width)))
    limits = FlowLimits(payload_bytes=payload_bytes, least_payload_bytes=least_payload_bytes, linger_seconds=0.02)
    return Outputs([route], 128, limits, subtask)


def batch(*keys: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(keys, pa.int64())], schema=SCHEMA)


def by_channel(rows: list[Row]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = defaultdict(list)
    for row in rows:
        if row.kind is RowKind.DATA:
            found[row.channel].extend(read_data(row, SCHEMA).column(0).to_pylist())
    return dict(found)


@given(st.lists(st.lists(st.integers(0, 50), max_size=20), max_size=5), st.integers(1, 3), st.integers(1, 200))
def test_keyed_records_go_to_the_owner_of_their_key_group_in_order(
    batches: list[list[int]], width: int, payload: int
) -> None:
    out = outputs(Exchange.KEY_GROUP, width, payload_bytes=payload)
    (_, _, send) = out.sends()[0]
    rows: list[Row] = []
    for keys in batches:
        send(batch(*keys))
        rows.extend(out.full(0.0))
    rows.extend(out.flush(0.0))
    found = by_channel(rows)
    every = [key for keys in batches for key in keys]
    for channel, keys in found.items():
        owners = key_groups(hash_columns(batch(*every), ("k",)), 128) * width // 128 if every else []
        assert keys == [key for key, owner in zip(every, owners, strict=True) if owner == channel - 10]
    assert sorted(key for keys in found.values() for key in keys) == sorted(every)
    assert out.records_out == len(every)
    for channel in out.channels:
        assert [row.seq for row in rows if row.channel == channel] == list(
            range(len([row for row in rows if row.channel == channel]))
        )


def test_broadcast_reaches_everybody_and_rebalance_takes_turns_from_a_different_start() -> None:
    out = outputs(Exchange.BROADCAST, 3)
    out.sends()[0][2](batch(1, 2))
    assert by_channel(out.flush(0.0)) == {10: [1, 2], 11: [1, 2], 12: [1, 2]}
    out = outputs(Exchange.REBALANCE, 3, subtask=1)
    for key in range(4):
        out.sends()[0][2](batch(key))
    assert by_channel(out.flush(0.0)) == {11: [0, 3], 12: [1], 10: [2]}


def test_a_barrier_comes_behind_everything_gathered_on_every_channel() -> None:
    out = outputs(Exchange.BROADCAST, 2)
    out.sends()[0][2](batch(1))
    rows = out.barrier(CheckpointId(7), 12.5)
    assert [(row.channel, row.kind, row.seq) for row in rows] == [
        (10, RowKind.DATA, 0), (11, RowKind.DATA, 0), (10, RowKind.BARRIER, 1), (11, RowKind.BARRIER, 1),
    ]  # fmt: skip
    assert rows[2].mark == 7 and read_barrier(rows[2]).triggered_at == 12.5


def test_an_end_comes_behind_everything_and_says_whether_to_drain() -> None:
    out = outputs(Exchange.KEY_GROUP, 1)
    out.sends()[0][2](batch(1))
    assert [(row.kind, row.mark) for row in out.end(drain=True)] == [(RowKind.DATA, MIN_WATERMARK), (RowKind.END, 1)]


def test_payloads_leave_when_they_are_full_and_stay_under_the_cap() -> None:
    out = outputs(Exchange.KEY_GROUP, 1, payload_bytes=80)
    out.sends()[0][2](batch(*range(5)))
    assert out.full(0.0) == []
    out.sends()[0][2](batch(*range(25)))
    rows = out.full(0.0)
    assert len(rows) == 3
    assert all(read_data(row, SCHEMA).num_rows <= 10 for row in rows)
    assert not out.has_waiting()


def test_no_record_waits_longer_than_its_linger_time() -> None:
    out = outputs(Exchange.KEY_GROUP, 1)
    assert not out.overdue(0.0)
    out.sends()[0][2](batch(1))
    assert not out.overdue(1.0)
    assert not out.overdue(1.019)
    assert out.overdue(1.02)
    out.flush(0.0)
    assert not out.overdue(9.0)


@pytest.mark.parametrize("exchange", [Exchange.FORWARD, Exchange.REBALANCE, Exchange.KEY_GROUP])
def test_a_single_channel_takes_all(exchange: Exchange) -> None:
    out = outputs(exchange, 1)
    out.sends()[0][2](batch(1, 2, 3))
    assert by_channel(out.flush(0.0)) == {10: [1, 2, 3]}


def marks(rows: list[Row]) -> list[tuple[int, RowKind, int]]:
    return [(row.channel, row.kind, row.mark) for row in rows]


def test_a_watermark_travels_with_the_last_of_the_records_before_it() -> None:
    out = outputs(Exchange.KEY_GROUP, 1, payload_bytes=80)
    (_, _, send) = out.sends()[0]
    send.advance(5)
    out.flush(10.0)
    send(batch(*range(25)))
    send.advance(9)
    assert marks(out.flush(10.0)) == [(10, RowKind.DATA, 5), (10, RowKind.DATA, 5), (10, RowKind.DATA, 9)]
    assert out.flush(20.0) == [], "the receiver knows"


def test_a_channel_without_records_hears_of_the_watermark_now_and_then_and_before_a_barrier() -> None:
    out = outputs(Exchange.REBALANCE, 2)
    (_, _, send) = out.sends()[0]
    send(batch(1))
    send.advance(5)
    assert marks(out.flush(100.0)) == [(10, RowKind.DATA, 5), (11, RowKind.WATERMARK, 5)]
    send.advance(6)
    assert out.time_due() == pytest.approx(100.05)
    assert not out.overdue(100.04) and out.flush(100.04) == []
    assert out.overdue(100.051)
    assert marks(out.flush(100.051)) == [(10, RowKind.WATERMARK, 6), (11, RowKind.WATERMARK, 6)]
    send.advance(7)
    kinds = [kind for _, kind, _ in marks(out.barrier(CheckpointId(1), 0.0))]
    assert kinds == [RowKind.WATERMARK, RowKind.WATERMARK, RowKind.BARRIER, RowKind.BARRIER]
    assert out.time_due() is None


def test_a_channel_is_idle_until_records_or_a_watermark_follow() -> None:
    out = outputs(Exchange.KEY_GROUP, 1)
    (_, _, send) = out.sends()[0]
    send.advance(5)
    send.rest()
    assert marks(out.flush(1.0)) == [(10, RowKind.WATERMARK, 5), (10, RowKind.IDLE, 0)]
    assert out.flush(2.0) == []
    send.advance(5)
    assert marks(out.flush(3.0)) == [(10, RowKind.WATERMARK, 5)], "active again, though no further"
    send.rest()
    out.flush(4.0)
    send(batch(1))
    send.advance(6)
    assert marks(out.flush(5.0)) == [(10, RowKind.DATA, 6)]


def test_an_end_without_drain_still_tells_how_far_time_had_come() -> None:
    out = outputs(Exchange.KEY_GROUP, 1)
    out.sends()[0][2].advance(5)
    assert marks(out.end(drain=False)) == [(10, RowKind.WATERMARK, 5), (10, RowKind.END, 0)]


def test_where_little_leaves_within_the_linger_time_payloads_are_small() -> None:
    """Behind slow receivers large ones would only fill Spark's pipes."""
    out = outputs(Exchange.KEY_GROUP, 1, payload_bytes=100_000, least_payload_bytes=8_000)
    send = out.sends()[0][2]
    sizes = []
    for step in range(100):
        send(batch(*range(12_500)))  # 100 KB, one a second
        sizes.append(max(row.size for row in out.full(float(step))))
    assert sizes[0] > 100_000
    assert sizes[-1] < 9_000
