import os
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from cutwater.checkpoint.file_storage import FileStorage
from cutwater.checkpoint.memory_storage import MemoryStorage
from cutwater.checkpoint.snapshot import StoredTable
from cutwater.checkpoint.storage import CheckpointStorage
from cutwater.checkpoint.stored_tables import RestoredTables, attachments_by_checksum, table_bytes, write_table
from cutwater.checkpoint.verification import verify_table
from cutwater.errors import DamagedCheckpoint, StorageError
from cutwater.flow.key_groups import KeyGroupRange

ALL = KeyGroupRange(0, 127)


class Frozen:
    """A frozen table made of ready batches."""

    def __init__(self, name: str, schema: pa.Schema, batches: list[pa.RecordBatch]) -> None:
        self.name = name
        self.schema = schema
        self._batches = batches
        self.released = 0

    def batches(self) -> Iterator[pa.RecordBatch]:
        yield from self._batches

    def release(self) -> None:
        self.released += 1


TYPES: dict[str, pa.DataType] = {"key_group": pa.int32(), "word": pa.string(), "n": pa.int64()}
SCHEMA = pa.schema(TYPES)


def keyed(*groups: list[int], name: str = "n") -> Frozen:
    """One batch per list of key groups."""
    batches = [
        pa.RecordBatch.from_pylist([{"key_group": g, "word": f"w{g}", "n": g * 2} for g in each], schema=SCHEMA)
        for each in groups
    ]
    return Frozen(name, SCHEMA, batches)


@pytest.fixture(params=["file", "memory"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> CheckpointStorage:
    return FileStorage(str(tmp_path)) if request.param == "file" else MemoryStorage()


def read(
    storage: CheckpointStorage | None, tables: list[StoredTable], key_groups: KeyGroupRange = ALL, state: str = "n",
    attachments: dict[str, bytes] | None = None,
) -> list[dict[str, object]]:  # fmt: skip
    restored = RestoredTables((), tables, key_groups, storage=storage, attachments=attachments)
    return [row for batch in restored.batches(state) for row in batch.to_pylist()]


def test_a_table_is_read_back_with_its_key_groups(storage: CheckpointStorage) -> None:
    table = write_table(storage, "job/chk-1/n.arrow", keyed([5, 3], [90]))
    assert (table.rows, table.first_key_group, table.last_key_group) == (3, 3, 90)
    assert table.size == storage.size("job/chk-1/n.arrow")
    verify_table(storage, table)
    assert read(storage, [table]) == [{"word": f"w{g}", "n": g * 2, "key_group": g} for g in (5, 3, 90)]


def test_integers_are_stored_as_narrow_as_they_are_and_read_back_as_declared(storage: CheckpointStorage) -> None:
    schema = pa.schema([("key_group", pa.int32()), ("a", pa.int64()), ("b", pa.int32()), ("at", pa.timestamp("us"))])
    edges = [0, 127, 128, -128, -129, 2**15 - 1, 2**15, -(2**15), 2**31 - 1, -(2**31)]
    contents = [[small] for small in edges] + [[2**31, None], [-(2**63), 2**63 - 1], [None, 7]]
    batches = [
        pa.RecordBatch.from_arrays(
            [pa.array([1] * len(each), pa.int32()), pa.array(each, pa.int64()),
             pa.array([v and max(-(2**31), min(v, 2**31 - 1)) for v in each], pa.int32()),
             pa.array([5] * len(each), pa.timestamp("us"))], schema=schema,
        )
        for each in contents
    ]  # fmt: skip
    table = write_table(storage, "n", Frozen("n", schema, [*batches, batches[0].slice(0, 1), batches[-1].slice(1)]))
    restored = list(RestoredTables((), [table], ALL, storage=storage).batches("n"))
    assert {batch.schema for batch in restored} == {schema}
    for batch in restored:
        batch.validate(full=True)
    assert [value for batch in restored for value in batch["a"].to_pylist()] == [v for c in contents for v in c] + [
        0,
        7,
    ]
    assert [batch["b"].to_pylist() for batch in restored] == [batch["b"].to_pylist() for batch in batches] + [[0], [7]]


def test_small_numbers_cost_few_bytes(storage: CheckpointStorage) -> None:
    schema = pa.schema([("key_group", pa.int32()), ("n", pa.int64())])
    rows = pa.record_batch([pa.array([9] * 100_000, pa.int32()), pa.array([1000] * 100_000, pa.int64())], schema=schema)
    assert write_table(storage, "n", Frozen("n", schema, [rows])).size < 310_000


def test_only_the_own_key_groups_are_read_from_all_parts(storage: CheckpointStorage) -> None:
    parts = [write_table(storage, "a", keyed([1, 40, 41], [2])), write_table(storage, "b", keyed([42, 80]))]
    assert [row["n"] for row in read(storage, parts, KeyGroupRange(40, 79))] == [80, 82, 84]
    assert read(storage, parts, KeyGroupRange(100, 127)) == []


def test_states_are_told_apart(storage: CheckpointStorage) -> None:
    parts = [write_table(storage, "a", keyed([1])), write_table(storage, "b", keyed([2], name="m"))]
    restored = RestoredTables(({"own": 1},), [*parts, parts[0]], ALL, storage=storage)
    assert restored.tables() == ("n", "m")
    assert restored.inline == ({"own": 1},)
    assert [row["n"] for row in read(storage, parts, state="m")] == [4]


def test_an_empty_table_and_one_without_key_groups_are_whole(storage: CheckpointStorage) -> None:
    empty = write_table(storage, "a", keyed([]))
    assert (empty.rows, empty.first_key_group, empty.last_key_group) == (0, 0, -1)
    assert read(storage, [empty]) == []
    plain = Frozen("n", pa.schema([("x", pa.int64())]), [pa.record_batch({"x": pa.array([1, 2], pa.int64())})])
    table = write_table(storage, "b", plain)
    assert (table.rows, table.last_key_group) == (2, -1)
    assert read(storage, [table], KeyGroupRange(5, 6)) == [{"x": 1}, {"x": 2}]


def test_a_changed_byte_is_found_before_the_first_row_is_handed_out(storage: CheckpointStorage) -> None:
    table = write_table(storage, "job/n.arrow", keyed([1, 2, 3]))
    content = bytearray(storage.read("job/n.arrow"))
    content[len(content) // 2] ^= 1
    storage.put("job/n.arrow", bytes(content))
    for check in (lambda: read(storage, [table]), lambda: verify_table(storage, table)):
        with pytest.raises(
            DamagedCheckpoint, match=rf"job/n\.arrow in .* is damaged: it has checksum \w+, .* {table.checksum}"
        ):
            check()


def test_a_missing_or_shortened_file_is_named(storage: CheckpointStorage) -> None:
    table = write_table(storage, "job/n.arrow", keyed([1]))
    storage.put("job/n.arrow", storage.read("job/n.arrow")[:-1])
    with pytest.raises(DamagedCheckpoint, match=rf"job/n\.arrow.*{table.size - 1} bytes, written were {table.size}"):
        verify_table(storage, table)
    with pytest.raises(DamagedCheckpoint, match="checksum"):
        read(storage, [table])
    storage.delete(["job/n.arrow"])
    for check in (lambda: read(storage, [table]), lambda: verify_table(storage, table)):
        with pytest.raises(DamagedCheckpoint, match=r"job/n\.arrow is missing in"):
            check()


def test_an_emptied_file_is_damage_not_an_arrow_error(tmp_path: Path) -> None:
    storage = FileStorage(str(tmp_path))
    table = write_table(storage, "n", keyed([1]))
    storage.put("n", b"")
    with pytest.raises(DamagedCheckpoint, match="checksum"):
        read(storage, [table])


def test_a_table_that_fails_while_it_is_written_leaves_no_file(tmp_path: Path) -> None:
    class Broken(Frozen):
        def batches(self) -> Iterator[pa.RecordBatch]:
            yield from super().batches()
            raise ZeroDivisionError("backend broke")

    with pytest.raises(ZeroDivisionError, match="backend broke"):
        write_table(FileStorage(str(tmp_path)), "job/n", Broken("n", SCHEMA, keyed([1])._batches))
    assert os.listdir(tmp_path / "job") == []


def test_whoever_froze_a_table_releases_it(storage: CheckpointStorage) -> None:
    frozen = keyed([1])
    write_table(storage, "n", frozen)
    table_bytes(frozen, 1 << 20)
    assert frozen.released == 0


def test_a_table_travels_as_an_attachment_and_is_found_by_its_checksum() -> None:
    table, content = table_bytes(keyed([1, 2]), limit=1 << 20)
    assert table.size == len(content)
    assert [row["n"] for row in read(None, [table], attachments=attachments_by_checksum([b"other", content]))] == [2, 4]
    with pytest.raises(DamagedCheckpoint, match="did not come"):
        read(None, [table], attachments={})


def test_an_attachment_under_the_wrong_checksum_is_refused() -> None:
    table, content = table_bytes(keyed([1, 2]), limit=1 << 20)
    with pytest.raises(DamagedCheckpoint, match="checksum"):
        read(None, [table], attachments={table.checksum: content[:-1] + b"x"})


def test_a_state_too_large_for_memory_storage_is_named_with_the_limit() -> None:
    frozen = keyed(*[[g] * 1000 for g in range(50)])
    with pytest.raises(StorageError, match=r"State 'n' is larger than 20000 bytes.*storage='file:\.\.\.'"):
        table_bytes(frozen, limit=20_000)
    table, content = table_bytes(frozen, limit=10_000_000)
    assert table_bytes(frozen, limit=len(content))[0] == table
    with pytest.raises(StorageError):
        table_bytes(frozen, limit=len(content) - 1)
