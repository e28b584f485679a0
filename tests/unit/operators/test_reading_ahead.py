"""State that is not in memory is read at once for all keys of a batch, or of a step, not key by key."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import cutwater as cw
from cutwater.rows import batch_of
from cutwater.state.rocksdb_family import Family
from tests.unit.operators.collecting import Collected, after, opened

KEYS = 2000


class Total(cw.AggregateFunction):
    accumulator_type = "long"
    result_type = "long"

    def create(self) -> Any:
        return 0

    def add(self, accumulator: Any, row: Any) -> Any:
        return accumulator + row.v

    def merge(self, a: Any, b: Any) -> Any:
        return a + b

    def result(self, accumulator: Any) -> Any:
        return accumulator


KEPT_BY: dict[str, Callable[[cw.KeyedStream], cw.Stream]] = {
    "agg": lambda keyed: keyed.agg(v=Total()),
    "window": lambda keyed: keyed.window(cw.tumbling("10ms")).agg(v=Total()),
    "session": lambda keyed: keyed.window(cw.session("10ms")).agg(v=Total()),
}


@pytest.mark.parametrize("how", KEPT_BY)
def test_what_is_kept_under_the_keys_of_a_batch_is_read_at_once(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[int] = []
    read = Family.get

    def counted(family: Family, keys: list[bytes]) -> list[bytes | None]:
        reads.append(len(keys))
        return read(family, keys)

    monkeypatch.setattr(Family, "get", counted)
    stream = cw.Environment(checkpointing=None).read(cw.from_rows([], "k string, ts long, v long"), uid="in")
    keyed = stream.with_timestamps("ts").key_by("k")
    operator = opened(KEPT_BY[how](keyed), cw.RocksDB(cache="100kB", local_directories=[str(tmp_path)]))
    out = Collected()
    for value in (1, 10):
        reads.clear()
        operator.process(batch_of([(f"k{n}", 5, value) for n in range(KEYS)], stream.schema, "test"), 0, out)
    assert len(reads) == 1 and reads[0] > KEYS // 2
    if how == "window":
        reads.clear()
        after(operator.on_watermark(20, out))
        assert len(reads) <= 4, "in two steps told, and in two forgotten"
    operator.close()
