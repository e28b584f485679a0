"""Of a file of rows a subtask reads the sections that may hold its own key groups, and no others."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cutwater as cw
from cutwater.checkpoint import sections, stored_tables
from cutwater.checkpoint.checksum import checksum_of
from cutwater.checkpoint.file_storage import FileStorage
from cutwater.checkpoint.layout import JobLayout
from cutwater.checkpoint.memory_storage import MemoryStorage
from cutwater.checkpoint.storage import CheckpointStorage
from cutwater.checkpoint.stored_tables import RestoredTables
from cutwater.checkpoint.table_writer import TableWriter
from cutwater.checkpoint.verification import verify_file
from cutwater.errors import DamagedCheckpoint
from cutwater.flow.ids import Attempt, CheckpointId, SubtaskId
from cutwater.flow.key_groups import KeyGroupRange, key_group_range
from cutwater.state import rocksdb_layout
from cutwater.state.backend import KeyedStateStore
from cutwater.state.changes import Header, with_header
from cutwater.state.frozen import FrozenTable
from cutwater.state.stored import Form, Section, StoredFile, StoredTable, stored_table_from_json
from cutwater.state.tables import Column, Merge, Update

SCHEMA = pa.schema({"n": pa.int64(), "key_group": pa.int32()})
ALL = KeyGroupRange(0, 127)
Row = tuple[int, int]


class CountingStorage(MemoryStorage):
    """A distant one: what is read of it comes over the network."""

    def __init__(self) -> None:
        super().__init__()
        self.read_bytes = 0

    def read(self, name: str, offset: int = 0, length: int | None = None) -> bytes:
        content = super().read(name, offset, length)
        self.read_bytes += len(content)
        return content


class Rows:
    """A frozen table: one batch for each list of key groups. ``n`` counts."""

    name = "n"

    def __init__(self, batches: Sequence[Sequence[int]], schema: pa.Schema = SCHEMA) -> None:
        self.schema = schema
        self._groups = batches

    def batches(self) -> Iterator[pa.RecordBatch]:
        first = 0
        for groups in self._groups:
            columns = [pa.array(range(first, first + len(groups)), pa.int64()), pa.array(groups, pa.int32())]
            yield pa.RecordBatch.from_arrays(columns, schema=SCHEMA)
            first += len(groups)

    def release(self) -> None:
        """Nothing is kept."""


@pytest.fixture(params=["file", "distant"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> CheckpointStorage:
    return FileStorage(str(tmp_path)) if request.param == "file" else CountingStorage()


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    make_small(monkeypatch, batch=64, section=1000)


def make_small(patch: pytest.MonkeyPatch, *, batch: int, section: int) -> None:
    patch.setattr(stored_tables, "_BATCH_BYTES", batch)
    patch.setattr(stored_tables, "_BUFFER_BYTES", 16)
    patch.setattr(sections, "SECTION_BYTES", section)


def write(storage: CheckpointStorage, table: FrozenTable, checkpoint: int = 1) -> StoredTable:
    files = JobLayout("job").files_of(SubtaskId("v", 0), Attempt(1))
    return TableWriter(storage, files).write(CheckpointId(checkpoint), "u", table, None)[0]


def read(storage: CheckpointStorage, table: StoredTable, groups: KeyGroupRange) -> list[Row]:
    batches = RestoredTables((), [table], groups, storage=storage).batches("n")
    return [(row["n"], row["key_group"]) for batch in batches for row in batch.to_pylist()]


def rows_of(table: FrozenTable, groups: KeyGroupRange = ALL) -> list[Row]:
    found = ((row["n"], row["key_group"]) for batch in table.batches() for row in batch.to_pylist())
    return [row for row in found if row[1] in groups]


def only(table: StoredTable) -> StoredFile:
    (file,) = table.files
    return file


def change_byte(storage: CheckpointStorage, file: StoredFile, section: Section) -> None:
    content = bytearray(storage.read(file.file))
    content[section.offset + section.size // 2] ^= 1
    storage.put(file.file, bytes(content))


IN_ORDER = Rows([[group] * 100 for group in range(128)])


@settings(max_examples=60, deadline=None)
@given(
    batches=st.lists(
        st.lists(st.integers(0, 7), max_size=40).flatmap(lambda each: st.sampled_from([each, sorted(each)])),
        max_size=30,
    ),
    in_order=st.booleans(),
    section=st.sampled_from([1, 300, 2000]),
    batch=st.sampled_from([1, 500]),
    parallelism=st.integers(1, 5),
)
def test_whatever_the_order_all_subtasks_together_read_every_row_once(
    *, batches: list[list[int]], in_order: bool, section: int, batch: int, parallelism: int
) -> None:
    if in_order:
        groups = sorted(group for each in batches for group in each)
        batches = [groups[start : start + 20] for start in range(0, len(groups), 20)]
    table = Rows(batches)
    storage = CountingStorage()
    with pytest.MonkeyPatch.context() as patch:
        make_small(patch, batch=batch, section=section)
        stored = write(storage, table)
    file = only(stored)
    verify_file(storage, file)
    if file.sections:
        content = storage.read(file.file)
        assert [each.offset for each in file.sections] == [
            sum(each.size for each in file.sections[:number]) for number in range(len(file.sections))
        ]
        assert sum(each.size for each in file.sections) == file.size
        for each in file.sections:
            assert each.checksum == checksum_of(content[each.offset : each.offset + each.size])
    for index in range(parallelism):
        own = key_group_range(index, parallelism, 8)
        assert read(storage, stored, own) == rows_of(table, own)


def test_rows_in_order_are_read_by_their_share(storage: CheckpointStorage) -> None:
    table = write(storage, IN_ORDER)
    file = only(table)
    assert len(file.sections) > 20
    for index in range(4):
        own = key_group_range(index, 4, 128)
        assert read(storage, table, own) == rows_of(IN_ORDER, own)
    if isinstance(storage, CountingStorage):
        assert storage.read_bytes < 1.3 * file.size
        storage.read_bytes = 0
        assert read(storage, table, ALL) == rows_of(IN_ORDER)
        assert storage.read_bytes == file.size


def test_a_file_of_rows_in_no_order_has_no_sections(storage: CheckpointStorage) -> None:
    table = Rows([[(7 * number + step) % 128 for number in range(50)] for step in range(100)])
    stored = write(storage, table)
    assert only(stored).sections == ()
    assert read(storage, stored, KeyGroupRange(3, 9)) == rows_of(table, KeyGroupRange(3, 9))


@pytest.mark.parametrize("first", [True, False], ids=["first", "last"])
def test_rows_in_no_order_stand_apart_from_those_in_order(storage: CheckpointStorage, *, first: bool) -> None:
    """As those of RocksDB's cache do."""
    cached, ordered = [[90, 3, 40] * 20] * 5, [[group] * 100 for group in range(128)]
    table = Rows([*cached, *ordered] if first else [*ordered, *cached])
    file = only(stored := write(storage, table))
    of_cache = file.sections[0 if first else -1]
    assert (of_cache.first_key_group, of_cache.last_key_group) == (3, 90)
    others = file.sections[1:] if first else file.sections[1:-1]
    assert max(each.last_key_group - each.first_key_group for each in others) < 10
    assert read(storage, stored, KeyGroupRange(40, 50)) == rows_of(table, KeyGroupRange(40, 50))


def test_where_the_order_begins_anew_a_section_does(storage: CheckpointStorage) -> None:
    """As in a table that two parts of an earlier one were restored to."""
    file = only(write(storage, Rows([[group] * 30 for group in range(100)] * 2)))
    assert max(each.last_key_group - each.first_key_group for each in file.sections) < 20


def test_a_key_group_is_not_cut(storage: CheckpointStorage) -> None:
    file = only(write(storage, Rows([[5] * 100] * 50 + [[6] * 100] * 50)))
    assert [(each.first_key_group, each.last_key_group) for each in file.sections] == [(0, -1), (5, 5), (6, 6)]


def test_a_small_file_is_read_as_a_whole(storage: CheckpointStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sections, "SECTION_BYTES", 1 << 20)
    assert only(write(storage, Rows([[90, 3] * 9, [1] * 100, [2] * 100, [1] * 100]))).sections == ()


def test_a_changed_byte_is_found_by_those_who_need_it_and_no_others(storage: CheckpointStorage) -> None:
    table = write(storage, IN_ORDER)
    file = only(table)
    section = next(each for each in file.sections if each.first_key_group >= 64)
    change_byte(storage, file, section)
    lower = KeyGroupRange(0, section.first_key_group - 1)
    assert read(storage, table, lower) == rows_of(IN_ORDER, lower)
    with pytest.raises(
        DamagedCheckpoint,
        match=rf"a1\+u\+n\.arrow in .* is damaged: its {section.size} bytes from {section.offset} on have checksum \w+, "
        rf"written was {section.checksum}",
    ):
        read(storage, table, KeyGroupRange(64, 127))
    change_byte(storage, file, file.sections[0])
    with pytest.raises(DamagedCheckpoint, match="bytes from 0 on"):
        read(storage, table, lower)


def test_a_shortened_emptied_or_missing_file_is_damage(storage: CheckpointStorage) -> None:
    table = write(storage, IN_ORDER)
    file = only(table)
    upper = KeyGroupRange(64, 127)
    for left in (file.size - 1, file.size // 4, 0):
        storage.put(file.file, storage.read(file.file)[:left])
        with pytest.raises(DamagedCheckpoint, match="is damaged"):
            read(storage, table, upper)
    storage.delete([file.file])
    with pytest.raises(DamagedCheckpoint, match=r"job/chk-1/v\+0\+a1\+u\+n\.arrow is missing in"):
        read(storage, table, upper)


def test_sections_survive_json_and_files_of_earlier_versions_have_none(storage: CheckpointStorage) -> None:
    table = write(storage, IN_ORDER)
    value = json.loads(json.dumps(asdict(table)))
    assert stored_table_from_json(value) == table
    del value["files"][0]["sections"]
    before = stored_table_from_json(value)
    assert only(before) == replace(only(table), sections=())
    half = key_group_range(1, 2, 128)
    assert read(storage, before, half) == rows_of(IN_ORDER, half)


def test_a_base_and_its_changes_are_read_by_sections_with_what_the_changes_tell(storage: CheckpointStorage) -> None:
    base = write(storage, IN_ORDER)
    # The same numbers again: of the even key groups the rows are gone, of the others nothing is told.
    groups = [[~group if group % 2 == 0 else group] * 100 for group in range(128)]
    changes = write(storage, Rows(groups, with_header(SCHEMA, Header(identity=("n",)))), checkpoint=2)
    assert min(len(only(each).sections) for each in (base, changes)) > 20
    table = replace(base, files=(*base.files, *changes.files), form=Form.CHANGES)
    for index in range(3):
        own = key_group_range(index, 3, 128)
        assert read(storage, table, own) == [row for row in rows_of(IN_ORDER, own) if row[1] % 2]


@pytest.mark.parametrize("kind", ["rows", "aggregates", "panes"])
def test_a_full_snapshot_of_rocksdb_is_read_by_share(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_small(monkeypatch, batch=4000, section=16_000)
    monkeypatch.setattr(rocksdb_layout, "READ_ROWS", 256)
    storage = CountingStorage()
    backend = cw.RocksDB(cache="50kB", local_directories=[str(tmp_path)])
    store = backend.open("u", ALL, 128)
    fill(store, kind)
    [frozen] = store.freeze(CheckpointId(1))
    stored = write(storage, frozen)
    frozen.release()
    store.close()

    def texts(groups: KeyGroupRange) -> list[str]:
        storage.read_bytes = 0
        batches = RestoredTables((), [stored], groups, storage=storage).batches("n")
        return [text for batch in batches for text in batch.columns[-2].to_pylist()]

    assert sorted(texts(ALL)) == sorted(map(text_of, range(KEYS)))
    assert storage.read_bytes == only(stored).size
    found: list[str] = []
    for index in range(4):
        found += texts(key_group_range(index, 4, 128))
        assert storage.read_bytes < 0.45 * only(stored).size, (
            "a quarter, the rows of the cache, and what is cut with others"
        )
    assert sorted(found) == sorted(map(text_of, range(KEYS)))


KEYS = 6000


def text_of(key: int) -> str:
    return f"{key:x>80}"


def fill(store: KeyedStateStore, kind: str) -> None:
    keys = pa.schema([("k", pa.int64())])
    column = Column("m", pa.string())
    table: Any
    match kind:
        case "rows":
            table = store.rows("n", keys, pa.string())
        case "aggregates":
            table = store.aggregates("n", keys, [column])
        case _:
            table = store.panes("n", keys, "pane", [(column, Merge.MAX)])
    numbers = np.random.default_rng(1).permutation(KEYS)
    for part in np.split(numbers, 30):
        texts = [text_of(number) for number in part.tolist()]
        batch = pa.record_batch({"k": pa.array(part), "m": pa.array(texts)})
        match kind:
            case "rows":
                for number, text in zip(part.tolist(), texts, strict=True):
                    table.put(number, text)
            case "aggregates":
                table.update(table.locate(batch.select(["k"])), [Update(0, Merge.MAX, batch.column("m"))])
            case _:
                table.merge(5, batch)
        store.tend()
