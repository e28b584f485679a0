"""Ended splits: in few bytes, and none of them is read again, or lost, whatever the restarts."""

import json
import random
import uuid
from collections import Counter
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import cutwater as cw
from cutwater.connectors.source import END, EndOfSplit, SourceContext
from cutwater.subtask import ended_splits
from cutwater.subtask.ended_splits import unpacked
from cutwater.subtask.source_input import SourceInput

CONTEXT = SourceContext("job", "files", 0, 1, 1)
FILES = 50_000


class Files(cw.Source):
    """A split is a file with one record, its path; ``read`` says what was ever returned."""

    schema = "path string"

    def __init__(self) -> None:
        self.read: list[str] = []

    def splits(self) -> list[Any]:
        return []

    def open(self, split: Any, position: Any, ctx: SourceContext) -> "OneRecord":
        return OneRecord(self, split["path"], position)


class OneRecord(cw.SplitReader):
    def __init__(self, source: Files, path: str, position: int | None) -> None:
        self._source, self._path, self._at = source, path, position or 0

    def next_batch(self, max_rows: int, timeout: timedelta) -> pa.RecordBatch | EndOfSplit | None:
        if self._at:
            return END
        self._at = 1
        self._source.read.append(self._path)
        return pa.record_batch({"path": [self._path]})

    def position(self) -> int:
        return self._at


def split(path: str, size: int = 1) -> dict[str, Any]:
    return {"path": path, "begin": 0, "end": size, "size": size}


def fresh(*paths: str) -> list[Any]:
    return [{"split": split(path), "position": None} for path in paths]


def read_all(source_input: SourceInput) -> None:
    while not source_input.exhausted:
        source_input.next(10, timedelta(0))


@pytest.mark.parametrize(("names", "most_bytes"), [("numbered", 14), ("random", 44)])
def test_so_many_bytes_are_stored_for_each_file(names: str, most_bytes: int) -> None:
    chance = random.Random(1)

    def path(number: int) -> str:
        name = f"part-{number:05d}" if names == "numbered" else uuid.UUID(int=chance.getrandbits(128))
        return f"/data/warehouse/incoming/{name}.json"

    told: list[Any] = [
        {"split": split(path(n), chance.randrange(100_000)), "position": 7, "ended": True} for n in range(FILES)
    ]
    stored = SourceInput(Files(), CONTEXT, told).frozen_positions()()
    assert len(json.dumps(stored)) / FILES < most_bytes
    assert len(json.dumps(told)) / FILES > 120
    by_path = {entry["split"]["path"]: entry for entry in unpacked(json.loads(json.dumps(stored)))}
    assert len(by_path) == FILES and all(by_path[t["split"]["path"]]["split"] == t["split"] for t in told)


@given(
    steps=st.lists(
        st.one_of(st.tuples(st.just("came"), st.integers(0, 30)), st.tuples(st.just("read"), st.integers(1, 8))),
        max_size=20,
    ),
    cuts=st.sets(st.integers(0, 20), max_size=4),
    widths=st.lists(st.integers(1, 3), min_size=5, max_size=5),
)
def test_no_file_is_read_twice_or_skipped_whatever_the_restarts(steps: Any, cuts: Any, widths: Any) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ended_splits, "SEGMENT", 4)
        patch.setattr(ended_splits, "FEWEST", 2)
        source, attempt = Files(), 0
        inputs = [SourceInput(source, CONTEXT, [])]
        came: list[str] = []
        for number, (what, many) in enumerate(steps):
            if number in cuts:
                stored = [entry for each in inputs for entry in json.loads(json.dumps(each.frozen_positions()()))]
                attempt += 1
                width = widths[attempt]
                inputs = [SourceInput(source, CONTEXT, stored[index::width]) for index in range(width)]
                assert sorted(entry["split"]["path"] for entry in unpacked(stored)) == sorted(came)
            if what == "came":
                new = [f"f{len(came) + n}" for n in range(many)]
                came += new
                for path in new:
                    # the driver deals each split out once; it may tell the same subtask twice
                    receiver = inputs[len(path) % len(inputs)]
                    receiver.add(fresh(path))
                    receiver.add(fresh(path))
            else:
                for each in inputs:
                    for _ in range(many):
                        each.next(10, timedelta(0))
        for each in inputs:
            read_all(each)
        assert Counter(source.read) == Counter(came)


def test_a_snapshot_does_not_change_when_more_splits_end() -> None:
    source_input = SourceInput(Files(), CONTEXT, fresh(*(f"f{n}" for n in range(200))))
    for _ in range(100):
        source_input.next(10, timedelta(0))
    frozen = source_input.frozen_positions()
    then = source_input.positions()
    read_all(source_input)
    assert Counter(json.dumps(e["split"]) for e in unpacked(frozen()) if e["ended"]) == Counter(
        json.dumps(e["split"]) for e in then if e["ended"]
    )


def test_ended_splits_that_are_dealt_out_again_are_not_read() -> None:
    source = Files()
    first = SourceInput(source, CONTEXT, fresh(*(f"f{n}" for n in range(200))))
    read_all(first)
    restored = SourceInput(source, CONTEXT, first.frozen_positions()())
    restored.add(fresh(*(f"f{n}" for n in range(200))))
    read_all(restored)
    assert len(source.read) == 200


def test_few_ended_splits_stay_readable() -> None:
    source_input = SourceInput(Files(), CONTEXT, fresh("a"))
    read_all(source_input)
    assert source_input.frozen_positions()() == [{"split": split("a"), "position": 1, "ended": True}]


def test_another_form_is_refused() -> None:
    with pytest.raises(ValueError, match="packed in form 2; this version reads form 1"):
        SourceInput(Files(), CONTEXT, [{"split": "x", "position": None, "ended": True, "packed": 2}])
