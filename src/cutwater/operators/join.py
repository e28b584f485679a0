"""Joins of two keyed streams: each pair comes out when its later record arrives."""

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from heapq import heapify, heappop, heappush

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cutwater.errors import SchemaError
from cutwater.flow.arrow import Field
from cutwater.flow.event_time import EventTime, Times
from cutwater.flow.partitioning import by_number
from cutwater.flow.watermarks import MIN_WATERMARK, Milliseconds
from cutwater.operators.joined_rows import ENOUGH_BYTES, Joined, JoinedRows
from cutwater.operators.keyed_state import KeyedStateOperator
from cutwater.operators.late_records import in_time
from cutwater.operators.operator import Collector, Json, OperatorContext
from cutwater.operators.stored_watermark import restored_watermark, stored_watermark
from cutwater.operators.told_before import ToldBefore
from cutwater.state.frozen import refuse_reserved
from cutwater.state.tables import JoinSide, JoinTable, TooManyPairs

LEFT, RIGHT = 0, 1
BUCKET = "bucket"
TABLE = "rows"
LATE = {LEFT: "late", RIGHT: "late_right"}
BUCKETS_A_STEP = 512
LEAST_WIDTH: Milliseconds = 20
"""Of a bucket: what is done for each bucket takes longer than a look at some rows that are too far away."""
_WIDTHS = "widths"


class EquiJoin(KeyedStateOperator):
    """``k.join(other)``: every pair of records with the same key, whenever they came. State grows with the input.

    As in SQL, a null in the key is equal to nothing.
    """

    input_ports = 2

    def __init__(self, left: Sequence[str], right: Sequence[str]) -> None:
        self._keys = (tuple(left), tuple(right))
        self.where = "join"

    def describe(self) -> str:
        return "join"

    def output_schema(self, inputs: Sequence[pa.Schema]) -> pa.Schema:
        """Key columns, the left side's others, the right side's others; of two with the same name that one is ``x_right``."""
        left, right = inputs
        self._sides = tuple(JoinSide(schema, keys) for schema, keys in zip(inputs, self._keys, strict=True))
        types = [[side.schema.field(name).type for name in side.keys] for side in self._sides]
        if types[LEFT] != types[RIGHT]:
            raise SchemaError(
                f"join: the keys are {_told(self._sides[LEFT])} on the left and {_told(self._sides[RIGHT])} on the right; "
                f"they must be of the same types."
            )
        for schema in inputs:
            for name in schema.names:
                refuse_reserved(name, "join")
                if name == BUCKET:
                    raise SchemaError(
                        f"join: {name!r} is the name under which state stores its buckets; rename that column."
                    )
        fields: list[Field] = [left.field(name).with_nullable(False) for name in self._keys[LEFT]]
        self._others = tuple([name for name in side.schema.names if name not in side.keys] for side in self._sides)
        fields += [left.field(name) for name in self._others[LEFT]]
        taken = {field.name for field in fields}
        self._renamed: dict[str, str] = {}
        for name in self._others[RIGHT]:
            new = name
            while new in taken:
                new += "_right"
            taken.add(new)
            self._renamed[name] = new
            fields.append(right.field(name).with_name(new))
        self._pairs = pa.schema(fields)
        return self._pairs

    def right_name(self, name: str) -> str:
        """What a column of the right side is called in the result."""
        return dict(zip(self._keys[RIGHT], self._keys[LEFT], strict=True)).get(name) or self._renamed[name]

    def open(self, ctx: OperatorContext) -> None:
        self.where = f"join {ctx.name!r} ({ctx.uid})"
        self._open_store(ctx)
        self._turn = ctx.turn
        self._at_once = (JoinedRows(), JoinedRows())
        self._table: JoinTable = self.store.join(TABLE, self._sides[LEFT], self._sides[RIGHT], BUCKET)

    def process(self, batch: pa.RecordBatch, port: int, out: Collector) -> None:
        self._turn.begin()
        made = 0
        while batch.num_rows:
            rows, joined = self._joined(batch, port)
            batch = batch.slice(rows)
            self._give_out(joined, port, out)
            made += joined.pairs_bytes
            if batch.num_rows and self._turn.leave(batch.num_rows, enough=made >= ENOUGH_BYTES):
                return

    def _joined(self, batch: pa.RecordBatch, port: int) -> tuple[int, Joined]:
        """As many of its first rows as have not too many pairs, and how many they are."""
        at_once = self._at_once[port]
        while True:
            rows = at_once.next(batch.num_rows)
            joined = Joined(bounded=rows > 1)
            try:
                self._join(batch.slice(0, rows), port, joined)
            except TooManyPairs as error:
                at_once.failed(rows, error)
            else:
                at_once.joined(rows, joined.pairs_bytes)
                return rows, joined

    def _join(self, batch: pa.RecordBatch, port: int, joined: Joined) -> None:
        """Changes nothing else. TooManyPairs if there is no room for them."""
        keyed = self._with_key(batch, port)
        if keyed.num_rows:
            self._meet(keyed, port, 0, joined)
            joined.rows.append((0, keyed))

    def _give_out(self, joined: Joined, port: int, out: Collector) -> None:
        """And keep the rows."""
        for late in joined.late:
            out.emit_side(LATE[port], late)
        for pairs in joined.pairs:
            out.emit(pairs)
        for bucket, rows in joined.rows:
            self._keep(port, bucket, rows)

    def _keep(self, port: int, bucket: int, rows: pa.RecordBatch) -> None:
        self._table.add(port, bucket, rows)

    def _meet(self, rows: pa.RecordBatch, port: int, bucket: int, joined: Joined) -> None:
        """The pairs of ``rows`` and those with the same key in a bucket of the other side."""
        asked, others = self._table.matches(port, bucket, rows, joined.room)
        if len(asked):
            joined.add(self._pairs_of(rows, port, bucket, asked, others))

    def _with_key(self, batch: pa.RecordBatch, port: int) -> pa.RecordBatch:
        keys = [batch.column(name) for name in self._keys[port]]
        if not any(key.null_count for key in keys):
            return batch
        valid = keys[0].is_valid()
        for key in keys[1:]:
            valid = pc.and_(valid, key.is_valid())
        return batch.filter(valid)

    def _pairs_of(
        self, batch: pa.RecordBatch, port: int, bucket: int, asked: Times, others: pa.RecordBatch
    ) -> pa.RecordBatch:
        """``asked``: which of ``batch`` stands beside each of ``others``, which are in ``bucket``."""
        own = batch.take(asked)
        left, right = (own, others) if port == LEFT else (others, own)
        columns = [left.column(name) for name in (*self._keys[LEFT], *self._others[LEFT])]
        columns += [right.column(name) for name in self._others[RIGHT]]
        return pa.RecordBatch.from_arrays(columns, schema=self._pairs)


def _told(side: JoinSide) -> str:
    return ", ".join(f"{name} {side.schema.field(name).type}" for name in side.keys)


class TimedJoin(EquiJoin):
    """A join that forgets: what no record in time can meet any more is dropped. A record that is late goes to a side output
    (``late``, of the right side ``late_right``), unchanged."""

    def __init__(self, left: Sequence[str], right: Sequence[str], times: tuple[EventTime, EventTime]) -> None:
        super().__init__(left, right)
        self._times = times
        self._watermark = MIN_WATERMARK

    def output_schema(self, inputs: Sequence[pa.Schema]) -> pa.Schema:
        for time, schema in zip(self._times, inputs, strict=True):
            time.check(schema, self.where)
        return super().output_schema(inputs)

    def side_schemas(self) -> Mapping[str, pa.Schema]:
        return {LATE[port]: side.schema for port, side in enumerate(self._sides)}

    def ports_of_side(self, tag: str) -> Sequence[int]:
        return [port for port, late in LATE.items() if late == tag]

    def open(self, ctx: OperatorContext) -> None:
        super().open(ctx)
        self._steps = ctx.steps
        self._watermark = restored_watermark(ctx)
        self._told_before = tuple(ToldBefore(ctx, keys) for keys in self._keys)
        self._kept = set(self._table.buckets())
        self._soonest = list(self._kept)
        """The same buckets, as a heap: those that are done with are found without a look at the others."""
        heapify(self._soonest)

    def _join(self, batch: pa.RecordBatch, port: int, joined: Joined) -> None:
        times = self._times[port].of(batch, self.where)
        late = self._is_late(times, self._reached(batch, port))
        batch, times = in_time(batch, times, late, joined.late.append)
        # Behind the late ones: whoever counts those wants all of them, and windows give them so.
        keyed = self._with_key(batch, port)
        if keyed.num_rows < batch.num_rows:
            times = self._times[port].of(keyed, self.where)
        if keyed.num_rows:
            self._join_in_time(keyed, times, port, joined)

    def _reached(self, batch: pa.RecordBatch, port: int) -> Times | Milliseconds:
        """How far time has come for each record, or for all."""
        return self._told_before[port].time_of(batch, self._watermark)

    @abstractmethod
    def _is_late(self, times: Times, reached: Times | Milliseconds) -> npt.NDArray[np.bool_]: ...

    @abstractmethod
    def _join_in_time(self, batch: pa.RecordBatch, times: Times, port: int, joined: Joined) -> None: ...

    @abstractmethod
    def _is_done(self, bucket: int) -> bool:
        """Whether no record that may still come meets one of the bucket. None is done before a lower one."""

    def _keep(self, port: int, bucket: int, rows: pa.RecordBatch) -> None:
        super()._keep(port, bucket, rows)
        if bucket not in self._kept:
            self._kept.add(bucket)
            heappush(self._soonest, bucket)

    def on_watermark(self, watermark: Milliseconds, out: Collector) -> Iterator[None]:
        self._watermark = max(watermark, self._watermark)
        yield from self._drop_done()
        out.advance(watermark)

    def resuming(self, out: Collector) -> Iterator[None]:
        """A snapshot between two steps holds buckets that nobody asks for any more."""
        yield from self._drop_done()

    def _drop_done(self) -> Iterator[None]:
        for step in self._steps.of(self._done(), BUCKETS_A_STEP):
            for bucket in step:
                self._table.drop(bucket)
            yield

    def _done(self) -> Iterator[int]:
        while self._soonest and self._is_done(self._soonest[0]):
            bucket = heappop(self._soonest)
            self._kept.discard(bucket)
            yield bucket

    def _inline(self) -> Json:
        # Those of the two sides differ in the names of the keys only.
        return {**stored_watermark(self._watermark), **self._told_before[LEFT].stored(self._watermark)}


class IntervalJoin(TimedJoin):
    """``k.join(other, within="10s")``: pairs whose event times are at most ``within`` apart.

    Rows are kept in buckets of that length at least, so that a record finds its partners in three of them; in more only where those
    of a checkpoint are shorter, as ``within`` was then.
    """

    def __init__(
        self, left: Sequence[str], right: Sequence[str], times: tuple[EventTime, EventTime], within: Milliseconds
    ) -> None:
        super().__init__(left, right, times)
        self._within = within
        self._width = max(LEAST_WIDTH, within)

    def describe(self) -> str:
        return f"join(within {self._within} ms)"

    def open(self, ctx: OperatorContext) -> None:
        super().open(ctx)
        # Rows that were restored stand in buckets of the length that was used then. Where none is stored, they were no longer
        # than they had to be.
        parts = ctx.restored.inline if ctx.restored is not None else ()
        self._width = next(
            (width for part in parts for width in part.get(_WIDTHS, (max(1, self._within),))), self._width
        )

    def _inline(self) -> Json:
        return {**super()._inline(), _WIDTHS: [self._width]}

    def _is_late(self, times: Times, reached: Times | Milliseconds) -> npt.NDArray[np.bool_]:
        late: npt.NDArray[np.bool_] = times <= reached
        return late

    def _join_in_time(self, batch: pa.RecordBatch, times: Times, port: int, joined: Joined) -> None:
        farthest = -(-self._within // self._width)
        for bucket, part in by_number(batch, times // self._width):
            for other in range(bucket - farthest, bucket + farthest + 1):
                if other in self._kept:
                    self._meet(part, port, other, joined)
            joined.rows.append((bucket, part))

    def _pairs_of(
        self, batch: pa.RecordBatch, port: int, bucket: int, asked: Times, others: pa.RecordBatch
    ) -> pa.RecordBatch:
        own = self._times[port].of(batch, self.where)
        apart = np.abs(own[asked] - self._times[1 - port].of(others, self.where))
        near = apart <= self._within
        return super()._pairs_of(batch, port, bucket, asked[near], others.filter(pa.array(near)))

    def _is_done(self, bucket: int) -> bool:
        return (bucket + 1) * self._width - 1 + self._within <= self._watermark
