"""One table of each kind, how the contract of backends writes to it, and what it then must hold; keys and values to try."""

import datetime as dt
import decimal
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from cutwater.flow.key_groups import KeyGroupRange
from cutwater.rows import row_type
from cutwater.state.backend import KeyedStateStore, StateBackend
from cutwater.state.memory import Memory
from cutwater.state.tables import Column, JoinSide, Merge, ReadsKeys, Update

MAX_PARALLELISM = 128
ALL_GROUPS = KeyGroupRange(0, MAX_PARALLELISM - 1)


@contextmanager
def opened(backend: StateBackend, groups: KeyGroupRange = ALL_GROUPS) -> Iterator[KeyedStateStore]:
    store = backend.open("contract", groups, MAX_PARALLELISM)
    try:
        yield store
    finally:
        store.close()


def expect(found: object, wanted: object, what: str) -> None:
    if found != wanted:
        raise AssertionError(f"{what}: {found!r} instead of {wanted!r}")


def _schema(**types: pa.DataType) -> pa.Schema:
    return pa.schema(list(types.items()))


_KEYS = _schema(user=pa.string(), n=pa.int64())


def _keys(step: int) -> list[dict[str, Any]]:
    """Old keys and new ones, with nulls and repeats."""
    users = [None, "", "ada", "bob", f"user {step}", "ada", f"user {step - 1}"]
    return [{"user": user, "n": None if i == 3 else step % 3 + i % 2} for i, user in enumerate(users)]


class Kind(ABC):
    name: str

    @abstractmethod
    def open(self, store: KeyedStateStore, called: str | None = None) -> Any:
        """``called``: where the store has several of the kind."""

    @abstractmethod
    def write(self, table: Any, step: int) -> None:
        """The same steps make the same content."""

    @abstractmethod
    def content(self, table: Any) -> Any:
        """Everything that an operator could read, in a form that can be compared."""

    def of_memory(self) -> Any:
        """A table to compare with."""
        return self.open(Memory().open("model", ALL_GROUPS, MAX_PARALLELISM))


def _sorted(rows: Iterator[Any]) -> list[str]:
    return sorted(map(repr, rows))


class Aggregates(Kind):
    name = "aggregates"
    _columns = (
        Column("count", pa.int64(), nullable=False),
        Column("sum", pa.float64()),
        Column("low", pa.timestamp("us")),
        Column("text", pa.string()),
        Column("seen", pa.list_(pa.int64())),
    )

    def open(self, store: KeyedStateStore, called: str | None = None) -> Any:
        return store.aggregates(called or "aggregates", _KEYS, self._columns)

    def write(self, table: Any, step: int) -> None:
        keys = pa.RecordBatch.from_pylist(_keys(step), _KEYS)
        touched = table.locate(keys)
        numbers = [None if i == 1 else step * 10 + i + 1 for i in range(keys.num_rows)]
        table.update(
            touched,
            [
                Update(0, Merge.COUNT),
                Update(1, Merge.ADD, pa.array(numbers, pa.float64())),
                Update(2, Merge.MIN, pa.array([n and -n for n in numbers], pa.timestamp("us"))),
                Update(3, Merge.LAST, pa.array([n and f"text {n}" for n in numbers])),
                Update(4, Merge.FIRST, pa.array([n and [n, None] for n in numbers], pa.list_(pa.int64()))),
            ],
        )

    def content(self, table: Any) -> Any:
        keys = pa.RecordBatch.from_pylist([key for step in range(-1, 30) for key in _keys(step)], _KEYS)
        # Asking for a key makes it: so all content is asked for with the same keys.
        rows = table.read(table.locate(keys).rows)
        return len(table), [column.to_pylist() for column in rows]


class Panes(Kind):
    name = "panes"
    _columns = (
        (Column("sum", pa.int64(), nullable=False), Merge.ADD),
        (Column("low", pa.float64()), Merge.MIN),
        (Column("high", pa.string()), Merge.MAX),
        (Column("first", pa.int64()), Merge.FIRST),
        (Column("last", pa.int64()), Merge.LAST),
    )

    def open(self, store: KeyedStateStore, called: str | None = None) -> Any:
        return store.panes(called or "panes", _KEYS, "start", self._columns)

    def write(self, table: Any, step: int) -> None:
        schema = pa.schema([*_KEYS, *(column.field for column, _ in self._columns)])
        rows = [
            {**key, "sum": step + i, "low": None if i == 2 else -i / 2, "high": f"{i}", "first": step, "last": step + i}
            for i, key in enumerate(_keys(step))
        ]
        table.merge(step % 3 * 1000 - 1000, pa.RecordBatch.from_pylist(rows, schema))
        if step % 4 == 3:
            table.drop((step - 1) % 3 * 1000 - 1000)
        table.drop(step * 1000 + 5000)

    def content(self, table: Any) -> Any:
        panes = sorted(table.panes())
        each = [_sorted(row for batch in table.read([pane]) for row in batch.to_pylist()) for pane in panes]
        together = [row for batch in table.read(panes) for row in batch.to_pylist()]
        if isinstance(table, ReadsKeys):
            self._check_keys(table, panes, together)
        return panes, each, _sorted(iter(together))

    def _check_keys(self, table: ReadsKeys, panes: list[int], rows: list[dict[str, Any]]) -> None:
        for asked in ({"user": "ada", "n": 0}, {"user": None, "n": 1}, {"user": "nobody", "n": 0}):
            keys = pa.RecordBatch.from_pylist([asked], _KEYS)
            found = [row for batch in table.read_keys(panes, keys) for row in batch.to_pylist()]
            own = [[row for row in of if row | asked == row] for of in (found, rows)]
            expect(own[0], own[1], f"rows of the key {asked}")


class Buckets(Kind):
    name = "buckets"
    _schema = pa.schema([*_KEYS, pa.field("text", pa.string()), pa.field("more", pa.list_(pa.int64()))])

    def open(self, store: KeyedStateStore, called: str | None = None) -> Any:
        return store.buckets(called or "buckets", self._schema, _KEYS.names, "start")

    def write(self, table: Any, step: int) -> None:
        rows = [{**key, "text": f"{step}, {i}", "more": [step, i]} for i, key in enumerate(_keys(step))]
        table.add(step % 3 - 1, pa.RecordBatch.from_pylist(rows, self._schema))
        if step % 4 == 3:
            table.drop((step - 1) % 3 - 1)
        table.drop(step + 50)

    def content(self, table: Any) -> Any:
        buckets = sorted(table.buckets())
        rows = {bucket: [row for batch in table.read([bucket]) for row in batch.to_pylist()] for bucket in buckets}
        return [(bucket, sorted(map(repr, of)), _by_key(of)) for bucket, of in rows.items()]


def _by_key(rows: list[dict[str, Any]]) -> dict[tuple[Any, ...], list[Any]]:
    """The order of arrival is that of each key: subtasks know nothing of the order between theirs."""
    found: dict[tuple[Any, ...], list[Any]] = {}
    for row in rows:
        found.setdefault((row["user"], row["n"]), []).append(row["text"])
    return found


_ASKED_TOGETHER = ((-1,), (0,), (1, 2), range(3, 30))
"""Of a join: the steps whose rows make one batch. Asking for each step alone takes eight times as long."""


class Joins(Kind):
    name = "join"
    _sides = (
        JoinSide(pa.schema([*_KEYS, pa.field("text", pa.string())]), ("user", "n")),
        JoinSide(
            _schema(x=pa.float64(), number=pa.int64(), who=pa.string()),
            ("who", "number"),
        ),
    )

    def open(self, store: KeyedStateStore, called: str | None = None) -> Any:
        return store.join(called or "join", *self._sides, "bucket")

    def write(self, table: Any, step: int) -> None:
        bucket = step % 3 - 1
        table.add(step % 2, bucket, self._rows(step % 2, step))
        table.add(0, bucket, self._rows(0, step + 1))
        if step % 4 == 3:
            table.drop((step - 1) % 3 - 1)
        table.drop(step + 50)

    def content(self, table: Any) -> Any:
        asked = [(side, self._rows(side, *steps)) for side in (0, 1) for steps in _ASKED_TOGETHER]
        pairs = []
        for bucket in sorted(table.buckets()):
            for side, asked_rows in asked:
                which, rows = table.matches(side, bucket, asked_rows)
                pairs.append((bucket, side, which.tolist(), rows.to_pylist()))
        return pairs

    def _rows(self, side: int, *steps: int) -> pa.RecordBatch:
        rows: list[dict[str, Any]] = []
        for step in steps:
            keys = [key for key in _keys(step) if None not in key.values()]
            if side == 0:
                rows += [{**key, "text": f"{step}, {i}"} for i, key in enumerate(keys)]
            else:
                rows += [{"x": step + i / 8, "number": key["n"], "who": key["user"]} for i, key in enumerate(keys)]
        return pa.RecordBatch.from_pylist(rows, self._sides[side].schema)


class Values(Kind):
    name = "rows"

    def open(self, store: KeyedStateStore, called: str | None = None) -> Any:
        return store.rows(called or "rows", _KEYS, pa.map_(pa.string(), pa.int64()))

    def _keys(self, step: int) -> list[Any]:
        return [tuple(key.values()) for key in _keys(step)]

    def write(self, table: Any, step: int) -> None:
        for i, key in enumerate(self._keys(step)):
            if i == step % 5:
                table.delete(key)
            elif (owned := table.own(key, dict)) is None:
                table.put(key, {"first": step})
            else:
                owned[f"then {step % 4}"] = i

    def content(self, table: Any) -> Any:
        found = {key: dict(value) for key, value in table.items()}
        for key in (key for step in range(-1, 30) for key in self._keys(step)):
            if table.get(key) != found.get(key):
                raise AssertionError(f"items() says {found.get(key)!r} under {key!r}, get {table.get(key)!r}")
        return found


class ValuesBySlot(Values):
    name = "rows by slot"

    def open(self, store: KeyedStateStore, called: str | None = None) -> Any:
        return store.rows(called or "rows", _KEYS, pa.map_(pa.string(), pa.int64()), "slot")

    def _keys(self, step: int) -> list[Any]:
        return [(*key, slot) for key in super()._keys(step) for slot in (step % 3 - 1, 1 << 40)]


KINDS: tuple[Kind, ...] = (Aggregates(), Panes(), Buckets(), Joins(), Values(), ValuesBySlot())


def keys_of_every_type() -> list[pa.RecordBatch]:
    """One column of each type, and several columns; each with a null and a repeat."""
    struct = pa.struct([("a", pa.int32()), ("b", pa.string())])
    columns = [
        pa.array([1, -1, None, 1, 2**62], pa.int64()),
        pa.array([1, None, 255, 1], pa.uint8()),
        pa.array([2**64 - 1, None, 0, 2**64 - 1], pa.uint64()),
        pa.array([0.5, -0.5, None, float("nan"), float("nan"), 0.0, -0.0], pa.float64()),
        pa.array([True, None, False, True]),
        pa.array(["", "a", None, "a\0b", "ü", "a"]),
        pa.array([b"", b"\0", None, b"\0\0", b"\0"]),
        pa.array([b"abc", None, b"\0\0\0", b"abc"], pa.binary(3)),
        pa.array([dt.date(1970, 1, 1), None, dt.date(1, 1, 1), dt.date(1970, 1, 1)]),
        pa.array([0, None, -1, 0], pa.timestamp("us", tz="UTC")),
        pa.array(
            [decimal.Decimal("1.50"), None, decimal.Decimal("-9.99"), decimal.Decimal("1.50")], pa.decimal128(9, 2)
        ),
        pa.array([{"a": 1, "b": "x"}, None, {"a": None, "b": None}, {"a": 1, "b": "x"}], struct),
        pa.array([None, None], pa.null()),
    ]
    single = [pa.record_batch([column], names=["k"]) for column in columns]
    several = pa.record_batch(
        [pa.array(["a", "", None, None, "a"]), pa.array(["", "a", None, "", ""]), pa.array([1, 1, None, 0, 1])],
        names=["a", "b", "c"],
    )
    return [*single, several]


def values_of_every_type() -> list[tuple[pa.DataType, Sequence[Any]]]:
    """Each as row functions see it."""
    point = pa.struct([("x", pa.float64()), ("tags", pa.list_(pa.string()))])
    row = row_type(("x", "tags"))
    return [
        (pa.int64(), (0, -1, 2**63 - 1)),
        (pa.int8(), (-128, 127)),
        (pa.uint64(), (2**64 - 1, 0)),
        (pa.float64(), (0.1, float("inf"))),
        (pa.float32(), (0.5, -2.0)),
        (pa.bool_(), (True, False)),
        (pa.string(), ("", "ü\0", "x" * 70_000)),
        (pa.binary(), (b"", b"\0\xff")),
        (pa.decimal128(38, 10), (decimal.Decimal("-1.0000000001"), decimal.Decimal("0E-10"))),
        (pa.date32(), (dt.date(2024, 2, 29),)),
        (pa.timestamp("us"), (dt.datetime(2024, 2, 29, 1, 2, 3, 4),)),  # noqa: DTZ001 (a type without a zone)
        (pa.list_(pa.int64()), ([], [1, None, 3])),
        (pa.map_(pa.string(), pa.list_(pa.int64())), ({}, {"a": [1], "b": None})),
        (point, (tuple.__new__(row, (1.5, ["a", None])), tuple.__new__(row, (None, None)))),
    ]
