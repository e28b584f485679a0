import errno
import io
import os
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from cutwater.checkpoint.file_storage import FileStorage
from cutwater.checkpoint.layout import JobLayout
from cutwater.checkpoint.memory_storage import MemoryStorage
from cutwater.checkpoint.storage import CheckpointStorage
from cutwater.checkpoint.stored_tables import RestoredTables, attachments_by_checksum
from cutwater.checkpoint.table_writer import TableWriter
from cutwater.checkpoint.verification import verify_file
from cutwater.checkpoint.written_file import WrittenFile
from cutwater.errors import DamagedCheckpoint, StorageError
from cutwater.flow.ids import Attempt, CheckpointId, SubtaskId
from cutwater.flow.key_groups import KeyGroupRange
from cutwater.state.changes import Header, with_header
from cutwater.state.frozen import FilePlace, FrozenTable
from cutwater.state.stored import Form, StoredFile, StoredTable

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


def write_table(storage: CheckpointStorage, uid: str, table: FrozenTable) -> StoredTable:
    files = JobLayout("job").files_of(SubtaskId("v", 0), Attempt(1))
    return TableWriter(storage, files).write(CheckpointId(1), uid, table, None)[0]


def table_bytes(table: FrozenTable, limit: int) -> tuple[StoredTable, bytes]:
    files = JobLayout("job").files_of(SubtaskId("v", 0), Attempt(1))
    stored, (content,) = TableWriter(None, files, limit=limit).write(CheckpointId(1), "u", table, None)
    return stored, content


def only(table: StoredTable) -> StoredFile:
    (file,) = table.files
    return file


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
    table = write_table(storage, "u", keyed([5, 3], [90]))
    assert (table.rows, table.first_key_group, table.last_key_group) == (3, 3, 90)
    assert only(table).size == storage.size(only(table).file)
    verify_file(storage, only(table))
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
    # Each in a file of its own: small batches of one file are stored as one.
    tables = [
        write_table(storage, f"u{number}", Frozen("n", schema, [batch]))
        for number, batch in enumerate([*batches, batches[0].slice(0, 1), batches[-1].slice(1)])
    ]
    restored = list(RestoredTables((), tables, ALL, storage=storage).batches("n"))
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
    assert only(write_table(storage, "n", Frozen("n", schema, [rows]))).size < 310_000


def test_many_small_batches_are_stored_as_few_large_ones(storage: CheckpointStorage) -> None:
    table = keyed(*([group] for group in range(100)), [])
    stored = write_table(storage, "counts", table)
    batches = list(RestoredTables((), [stored], ALL, storage=storage).batches("n"))
    assert [batch.num_rows for batch in batches] == [100]
    assert batches[0].column("n").to_pylist() == [2 * group for group in range(100)]


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
    table = write_table(storage, "u", keyed([1, 2, 3]))
    content = bytearray(storage.read(only(table).file))
    content[len(content) // 2] ^= 1
    storage.put(only(table).file, bytes(content))
    for check in (lambda: read(storage, [table]), lambda: verify_file(storage, only(table))):
        with pytest.raises(
            DamagedCheckpoint,
            match=rf"a1\+u\+n\.arrow in .* is damaged: it has checksum \w+, .* {only(table).checksum}",
        ):
            check()


def test_a_missing_or_shortened_file_is_named(storage: CheckpointStorage) -> None:
    table = write_table(storage, "u", keyed([1]))
    storage.put(only(table).file, storage.read(only(table).file)[:-1])
    with pytest.raises(
        DamagedCheckpoint,
        match=rf"job/chk-1/v\+0\+a1\+u\+n\.arrow.*{only(table).size - 1} bytes, written were {only(table).size}",
    ):
        verify_file(storage, only(table))
    with pytest.raises(DamagedCheckpoint, match="checksum"):
        read(storage, [table])
    storage.delete([only(table).file])
    for check in (lambda: read(storage, [table]), lambda: verify_file(storage, only(table))):
        with pytest.raises(DamagedCheckpoint, match=r"job/chk-1/v\+0\+a1\+u\+n\.arrow is missing in"):
            check()


def test_an_emptied_file_is_damage_not_an_arrow_error(tmp_path: Path) -> None:
    storage = FileStorage(str(tmp_path))
    table = write_table(storage, "n", keyed([1]))
    storage.put(only(table).file, b"")
    with pytest.raises(DamagedCheckpoint, match="checksum"):
        read(storage, [table])


def test_a_table_that_fails_while_it_is_written_leaves_no_file(tmp_path: Path) -> None:
    class Broken(Frozen):
        def batches(self) -> Iterator[pa.RecordBatch]:
            yield from super().batches()
            raise ZeroDivisionError("backend broke")

    with pytest.raises(ZeroDivisionError, match="backend broke"):
        write_table(FileStorage(str(tmp_path)), "u", Broken("n", SCHEMA, keyed([1])._batches))
    assert os.listdir(tmp_path / "job" / "chk-1") == []


def test_a_file_that_a_full_disk_refuses_is_let_go_of_without_another_try() -> None:
    """As pyarrow does, which tells the user's terminal of what fails then; the checkpoint has failed by that time."""

    class OnFullDisk(io.BytesIO):
        def flush(self) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

    WrittenFile("name", OnFullDisk(), "state").close()


def test_whoever_froze_a_table_releases_it(storage: CheckpointStorage) -> None:
    frozen = keyed([1])
    write_table(storage, "n", frozen)
    table_bytes(frozen, 1 << 20)
    assert frozen.released == 0


def test_a_table_travels_as_an_attachment_and_is_found_by_its_checksum() -> None:
    table, content = table_bytes(keyed([1, 2]), limit=1 << 20)
    assert only(table).size == len(content)
    assert [row["n"] for row in read(None, [table], attachments=attachments_by_checksum([b"other", content]))] == [2, 4]
    with pytest.raises(DamagedCheckpoint, match="did not come"):
        read(None, [table], attachments={})


def test_an_attachment_under_the_wrong_checksum_is_refused() -> None:
    table, content = table_bytes(keyed([1, 2]), limit=1 << 20)
    with pytest.raises(DamagedCheckpoint, match="checksum"):
        read(None, [table], attachments={only(table).checksum: content[:-1] + b"x"})


def test_a_state_too_large_for_memory_storage_is_named_with_the_limit() -> None:
    frozen = keyed(*[[g] * 1000 for g in range(50)])
    with pytest.raises(StorageError, match=r"State 'n' is larger than 20000 bytes.*storage='file:\.\.\.'"):
        table_bytes(frozen, limit=20_000)
    table, content = table_bytes(frozen, limit=10_000_000)
    assert table_bytes(frozen, limit=len(content))[0] == table
    with pytest.raises(StorageError):
        table_bytes(frozen, limit=len(content) - 1)


# --- a base and the changes since ----------------------------------------------------------------------------------------


class Increment(Frozen):
    """Stores itself behind the files that are there already."""

    def store(self, place: FilePlace) -> StoredTable:
        written = place.write(self)
        before = () if place.base is None else place.base.files
        rows = written.rows + (0 if place.base is None else place.base.rows)
        return StoredTable(self.name, (*before, *written.files), rows, 0, 127, Form.CHANGES)


def stored_changes(storage: CheckpointStorage, *files: tuple[Header, list[dict[str, object]]]) -> StoredTable:
    writer = TableWriter(storage, JobLayout("job").files_of(SubtaskId("v", 0), Attempt(1)))
    stored: StoredTable | None = None
    for number, (header, rows) in enumerate(files, 1):
        schema = with_header(SCHEMA, header) if stored is not None else SCHEMA
        increment = Increment("n", schema, [pa.RecordBatch.from_pylist([row], SCHEMA) for row in rows])
        stored, _ = writer.write(CheckpointId(number), "u", increment, stored)
    assert stored is not None
    return stored


def row(word: str | None, n: int | None, group: int) -> dict[str, object]:
    return {"key_group": group, "word": word, "n": n}


BY_WORD = Header(identity=("word",))


def test_a_later_row_replaces_the_earlier_one_of_the_same_identity(storage: CheckpointStorage) -> None:
    table = stored_changes(
        storage,
        (Header(), [row("a", 1, 5), row("b", 1, 6), row(None, 1, 7), row("c", 1, 90)]),
        (BY_WORD, [row("b", 2, 6), row("new", 2, 5)]),
        (BY_WORD, [row("b", 3, 6), row(None, 3, 7)]),
    )
    assert [file.file.split("+")[0] for file in table.files] == ["job/shared/1", "job/shared/2", "job/shared/3"]
    assert all(file.shared for file in table.files)
    wanted = [row("a", 1, 5), row("c", 1, 90), row("new", 2, 5), row("b", 3, 6), row(None, 3, 7)]
    assert read(storage, [table]) == wanted
    assert read(storage, [table], KeyGroupRange(0, 6)) == [each for each in wanted if each["key_group"] in (5, 6)]


def test_a_row_that_is_gone_hides_earlier_ones_until_it_comes_again(storage: CheckpointStorage) -> None:
    table = stored_changes(
        storage,
        (Header(), [row("a", 1, 5), row("b", 1, 6)]),
        (BY_WORD, [row("a", None, ~5), row("b", None, ~6)]),
        (BY_WORD, [row("b", 3, 6)]),
    )
    assert read(storage, [table]) == [row("b", 3, 6)]
    assert (table.first_key_group, read(storage, [table], KeyGroupRange(5, 5))) == (0, [])


def test_rows_of_a_dropped_bucket_are_gone_and_later_ones_of_it_are_not(storage: CheckpointStorage) -> None:
    in_bucket = Header(bucket="n", dropped=(1,))
    table = stored_changes(
        storage,
        (Header(), [row("a", 1, 5), row("a", 2, 5)]),
        (Header(bucket="n"), [row("b", 1, 6), row("b", 2, 6)]),
        (in_bucket, [row("c", 1, 7)]),
    )
    assert read(storage, [table]) == [row("a", 2, 5), row("b", 2, 6), row("c", 1, 7)]


def test_rows_of_one_file_never_replace_each_other(storage: CheckpointStorage) -> None:
    table = stored_changes(
        storage,
        (Header(), [row("a", 1, 5), row("a", 2, 5), row("b", 1, 5)]),
        (BY_WORD, [row("a", 3, 5), row("a", 4, 5)]),
    )
    assert read(storage, [table]) == [row("b", 1, 5), row("a", 3, 5), row("a", 4, 5)]


def test_files_that_may_be_deleted_with_their_checkpoint_are_not_built_on(storage: CheckpointStorage) -> None:
    full = write_table(storage, "u", keyed([1]))
    writer = TableWriter(storage, JobLayout("job").files_of(SubtaskId("v", 0), Attempt(1)))
    stored, _ = writer.write(CheckpointId(2), "u", Increment("n", SCHEMA, keyed([2])._batches), full)
    assert [file.file for file in stored.files] == ["job/shared/2+v+0+a1+u+n.arrow"]


def test_a_local_file_is_copied_and_fetched_under_its_own_name(storage: CheckpointStorage, tmp_path: Path) -> None:
    (tmp_path / "local").write_bytes(b"x" * 3_000_000)

    class Copied(Frozen):
        def store(self, place: FilePlace) -> StoredTable:
            return StoredTable("n", (place.copy("7.sst", str(tmp_path / "local")),), 1, 0, 127, Form.ROCKSDB)

    table = write_table(storage, "u", Copied("n", SCHEMA, []))
    file = only(table)
    assert (file.name, file.shared, file.file) == ("7.sst", True, "job/shared/1+v+0+a1+u+n+7.sst")
    restored = RestoredTables((), [table], ALL, storage=storage)
    restored.fetch(file, str(tmp_path / "back"))
    assert (tmp_path / "back").read_bytes() == b"x" * 3_000_000
    storage.put(file.file, b"y")
    with pytest.raises(DamagedCheckpoint, match="checksum"):
        restored.fetch(file, str(tmp_path / "back"))


def test_files_of_a_table_that_was_declined_do_not_travel_with_the_next_one(tmp_path: Path) -> None:
    (tmp_path / "there").write_bytes(b"x" * 1000)

    class Copied(Frozen):
        """One file is copied before another is found missing."""

        def store(self, place: FilePlace) -> StoredTable:
            files = tuple(place.copy(name, str(tmp_path / name)) for name in ("there", "missing"))
            return StoredTable("n", files, 1, 0, 127, Form.ROCKSDB)

    writer = TableWriter(None, JobLayout("job").files_of(SubtaskId("v", 0), Attempt(1)), limit=1 << 20)
    with pytest.raises(FileNotFoundError):
        writer.write(CheckpointId(1), "u", Copied("n", SCHEMA, []), None)
    table, attachments = writer.write(CheckpointId(2), "u", keyed([1]), None)
    assert set(attachments_by_checksum(attachments)) == {only(table).checksum}


def test_changes_that_make_a_state_too_large_do_not_travel_with_the_next_one() -> None:
    """The file of changes is small enough, what it is one of is not."""
    files = JobLayout("job").files_of(SubtaskId("v", 0), Attempt(1))
    base, (first,) = TableWriter(None, files, limit=1 << 20).write(
        CheckpointId(1), "u", Increment("n", SCHEMA, keyed([1])._batches), None
    )
    writer = TableWriter(None, files, limit=len(first) + 1)
    with pytest.raises(StorageError, match="is larger than"):
        writer.write(CheckpointId(2), "u", Increment("n", SCHEMA, keyed([2])._batches), base)
    table, attachments = writer.write(CheckpointId(3), "u", keyed([1]), None)
    assert set(attachments_by_checksum(attachments)) == {only(table).checksum}
