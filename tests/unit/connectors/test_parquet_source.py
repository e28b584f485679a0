"""Parquet files: every row once whatever the cuts, and what cannot be decoded is named or passed over."""

import pickle
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cutwater.connectors import input_files, parquet
from cutwater.connectors.parquet import parquet_files
from cutwater.connectors.spark_table import spark_table
from cutwater.errors import ConfigError, DataError, PlanError
from tests.unit.connectors.reading import read_all, read_split

SESSIONS = st.lists(st.tuples(st.integers(0, 3), st.integers(1, 7)), max_size=12)


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "DECODED_ROWS", 5)
    monkeypatch.setattr(input_files, "SPLIT_BYTES", 400)
    monkeypatch.setattr(input_files, "SMALLEST_SPLIT_BYTES", 100)


def write(path: Path, values: list[int], row_group_size: int = 10) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"n": pa.array(values, pa.int64())}), path, row_group_size=row_group_size)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], deadline=None)
@given(
    count=st.integers(0, 60),
    row_group_size=st.integers(1, 20),
    parallelism=st.integers(1, 4),
    sessions=SESSIONS,
)
def test_every_row_is_read_once_in_order_however_sessions_and_splits_cut_the_file(
    tmp_path: Path, count: int, row_group_size: int, parallelism: int, sessions: Any
) -> None:
    write(tmp_path / "a.parquet", list(range(count)), row_group_size)
    read = read_all(parquet_files(tmp_path / "a.parquet"), parallelism, sessions)
    assert [row["n"] for row in read] == list(range(count))


def test_a_large_file_is_split_by_row_groups(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", list(range(100)))
    source = parquet_files(tmp_path / "a.parquet")
    splits = source.splits_for(4)
    assert len(splits) > 1
    assert sorted(row["n"] for split in splits for row in read_split(source, split)[0]) == list(range(100))


def test_a_file_that_is_no_parquet_is_named_dropped_or_sent_aside(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", [1, 2])
    (tmp_path / "b.parquet").write_bytes(b"rubbish" * 20)
    write(tmp_path / "c.parquet", [3])
    with pytest.raises(DataError, match=r"b\.parquet.*the file cannot be read"):
        read_all(parquet_files(tmp_path))
    assert [row["n"] for row in read_all(parquet_files(tmp_path, on_error="skip"))] == [1, 2, 3]
    source = parquet_files(tmp_path, on_error="side")
    read = [read_split(source, split) for split in source.splits()]
    assert [row["n"] for rows, _ in read for row in rows] == [1, 2, 3]
    assert [Path(record["file"]).name for _, side in read for record in side] == ["b.parquet"]


def test_a_damaged_row_group_is_passed_over_and_the_others_are_read(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(
        pa.table({"n": pa.array(range(30), pa.int64())}),
        path,
        row_group_size=10,
        compression="zstd",
        use_dictionary=False,
    )
    start = pq.read_metadata(path).row_group(1).column(0).data_page_offset
    content = bytearray(path.read_bytes())
    content[start : start + 40] = b"\xff" * 40
    path.write_bytes(bytes(content))
    source = parquet_files(path, on_error="side")
    rows, side = [], []
    for split in source.splits():
        more_rows, more_side = read_split(source, split)
        rows, side = rows + more_rows, side + more_side
    assert [row["n"] for row in rows] == [*range(10), *range(20, 30)]
    assert ["row group 1" in record["error"] for record in side] == [True]


def test_a_file_without_a_column_of_the_schema_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", [1])
    with pytest.raises(DataError, match="there is no column 'm'; available: n"):
        read_all(parquet_files(tmp_path, "n long, m string"))


def test_an_error_says_once_what_cannot_be_read_and_speaks_of_no_lines(tmp_path: Path) -> None:
    pq.write_table(pa.table({"n": ["one"]}), tmp_path / "a.parquet")
    with pytest.raises(DataError, match=r"a\.parquet: row group 0 cannot be read: ") as caught:
        read_all(parquet_files(tmp_path, "n long"))
    assert str(caught.value).count("row group") == 1
    assert "line" not in str(caught.value)
    source = parquet_files(tmp_path, "n long", on_error="side")
    ((_, (record,)),) = [read_split(source, split) for split in source.splits()]
    assert (record["line"], record["text"]) == (None, "row group 0")


def test_the_schema_chooses_and_converts_columns(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", [1])
    assert read_all(parquet_files(tmp_path, "n double")) == [{"n": 1.0}]


def test_a_file_that_changed_since_it_was_found_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", [1])
    source = parquet_files(tmp_path, on_error="skip")
    (split,) = source.splits()
    write(tmp_path / "a.parquet", [1, 2, 3] * 100)
    with pytest.raises(DataError, match="must not change"):
        read_split(source, split)
    (tmp_path / "a.parquet").unlink()
    with pytest.raises(DataError, match="put the file back"):
        read_split(source, split)


def test_without_a_file_a_schema_is_needed(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="pass schema="):
        parquet_files(tmp_path)
    source = parquet_files(tmp_path / "later", "n long", watch=True)
    write(tmp_path / "later" / "a.parquet", [7])
    (found,) = source.discover(())
    assert read_split(source, found)[0] == [{"n": 7}]
    assert source.discover([found]) == []


class Table:
    """As much of a Spark DataFrame as is needed: each computation gives other rows."""

    schema = SimpleNamespace(
        jsonValue=lambda: {"type": "struct", "fields": [{"name": "n", "type": "long", "nullable": True}]}
    )

    isStreaming = False  # noqa: N815 (Spark spells it so)

    def __init__(self, *, dies: bool = False) -> None:
        self.computed = 0
        self._dies = dies

    @property
    def write(self) -> "Table":
        return self

    def mode(self, mode: str) -> "Table":
        assert mode == "overwrite"
        return self

    def parquet(self, url: str) -> None:
        folder = Path(url.removeprefix("file://"))
        for path in folder.glob("*"):
            path.unlink()
        self.computed += 1
        write(folder / f"part-{self.computed}.parquet", [self.computed])
        if self._dies:
            raise KeyboardInterrupt
        (folder / "_SUCCESS").touch()

    def __reduce__(self) -> Any:
        raise TypeError("a DataFrame cannot leave the driver")


def test_a_spark_table_is_computed_once_per_incarnation(tmp_path: Path) -> None:
    table = Table()
    for _ in range(2):
        source = spark_table(table)
        source.materialise(tmp_path / "inc" / "uid")
        in_worker = pickle.loads(pickle.dumps(source))  # noqa: S301 (our own bytes)
        assert read_all(in_worker) == [{"n": 1}]
    assert table.computed == 1


def test_a_spark_table_whose_writing_was_cut_short_is_written_again(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        spark_table(Table(dies=True)).materialise(tmp_path / "t")
    table = Table()
    table.computed = 1
    source = spark_table(table)
    source.materialise(tmp_path / "t")
    assert read_all(source) == [{"n": 2}]


def test_a_spark_table_must_be_materialised_first() -> None:
    with pytest.raises(PlanError, match="not materialised"):
        spark_table(Table()).splits()
    with pytest.raises(ConfigError, match="is no Spark DataFrame"):
        spark_table([1, 2])
