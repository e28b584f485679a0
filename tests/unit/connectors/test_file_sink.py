"""File sinks: what is visible when, what is cleaned up by whom, and what comes back when the files are read."""

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

from cutwater.connectors import file_sink
from cutwater.connectors.csv_lines import csv_files
from cutwater.connectors.file_sink import FileSink, csv_sink, json_sink, parquet_sink
from cutwater.connectors.json_lines import json_files
from cutwater.connectors.manifest import committed_files
from cutwater.connectors.parquet import parquet_files
from cutwater.connectors.sink import SinkContext
from cutwater.errors import CommitLost, ConfigError, RestoreError
from tests.unit.connectors.reading import read_all

SCHEMA = pa.schema([("n", pa.int64()), ("word", pa.string())])


def context(attempt: int = 1, subtask: int = 0, parallelism: int = 1, **more: Any) -> SinkContext:
    return SinkContext(
        "job",
        more.get("uid", "out"),
        subtask,
        parallelism,
        attempt,
        "inc-1",
        more.get("schema", SCHEMA),
        visible_up_to=more.get("visible_up_to"),
    )


def prepared(sink: FileSink, ctx: SinkContext, checkpoint: int, rows: list[dict[str, Any]]) -> Any:
    sink.open(ctx)
    ctx.checkpoint_id = checkpoint
    transaction = sink.begin(f"{ctx.attempt}-{checkpoint}-{ctx.subtask}")
    if rows:
        sink.write(transaction, pa.RecordBatch.from_pylist(rows, schema=ctx.schema))
    return json.loads(json.dumps(sink.prepare(transaction)))


def staged(tmp_path: Path) -> list[Path]:
    return [path for path in tmp_path.glob(".out.cutwater/**/*") if path.suffix in (".open", ".ready")]


def data_files(tmp_path: Path) -> list[Path]:
    return sorted(path for path in (tmp_path / "out").glob("**/*") if path.is_file())


def test_writing_the_pipeline_touches_nothing(tmp_path: Path) -> None:
    parquet_sink(tmp_path / "deep" / "out").check(SCHEMA)
    assert list(tmp_path.iterdir()) == []


def test_the_target_folder_exists_from_the_start_and_is_empty_until_a_commit(tmp_path: Path) -> None:
    sink = parquet_sink(tmp_path / "out")
    sink.open(context())
    assert (tmp_path / "out").is_dir()
    committable = prepared(sink, context(), 1, [{"n": 1, "word": "a"}])
    assert data_files(tmp_path) == []
    sink.commit(committable)
    (path,) = data_files(tmp_path)
    assert pl.read_parquet(path).to_dicts() == [{"n": 1, "word": "a"}]


def test_staged_files_match_no_glob_for_the_format_even_beside_the_target(tmp_path: Path) -> None:
    for make, extension in ((parquet_sink, "parquet"), (json_sink, "json"), (csv_sink, "csv")):
        prepared(make(tmp_path / "out"), context(uid=extension), 1, [{"n": 1, "word": "a"}])
        assert list(tmp_path.glob(f"**/*.{extension}*")) == []
    assert len(staged(tmp_path)) == 3


def test_the_final_name_carries_incarnation_uid_checkpoint_and_subtask(tmp_path: Path) -> None:
    committable = prepared(
        parquet_sink(tmp_path / "out"), context(subtask=3, parallelism=4), 17, [{"n": 1, "word": ""}]
    )
    (file,) = committable["files"]
    assert file["final"].startswith("part-inc-1-")
    assert "-out-0000000017-00003-0000.parquet" in file["final"]


def test_a_transaction_without_rows_is_none_and_leaves_nothing(tmp_path: Path) -> None:
    assert prepared(parquet_sink(tmp_path / "out"), context(), 1, []) is None
    assert staged(tmp_path) == []


def test_a_commit_may_be_repeated_and_done_by_another_process(tmp_path: Path) -> None:
    committable = prepared(parquet_sink(tmp_path / "out"), context(), 1, [{"n": 1, "word": "a"}])
    for _ in range(2):
        another = parquet_sink(tmp_path / "out")
        another.open(context(attempt=2, subtask=1, parallelism=2))
        another.commit(committable)
    assert len(data_files(tmp_path)) == 1


def test_a_staged_file_that_is_gone_is_reported_as_possible_loss(tmp_path: Path) -> None:
    sink = parquet_sink(tmp_path / "out")
    committable = prepared(sink, context(), 5, [{"n": 1, "word": "a"}, {"n": 2, "word": "b"}])
    (path,) = staged(tmp_path)
    path.unlink()
    with pytest.raises(CommitLost, match="out, subtask 0: 2 rows of checkpoint 5 may be lost"):
        sink.commit(committable)


def test_a_committed_file_that_a_reader_took_away_is_no_loss_when_the_commit_is_repeated(tmp_path: Path) -> None:
    sink = parquet_sink(tmp_path / "out")
    committable = prepared(sink, context(), 5, [{"n": 1, "word": "a"}])
    sink.commit(committable)
    sink.committed_everywhere(5, [committable])
    (path,) = data_files(tmp_path)
    path.unlink()
    sink.commit(committable)
    assert data_files(tmp_path) == []


def test_an_aborted_transaction_leaves_nothing_and_an_abort_takes_nothing_that_is_visible(tmp_path: Path) -> None:
    sink = parquet_sink(tmp_path / "out")
    aborted = prepared(sink, context(), 1, [{"n": 1, "word": "a"}])
    sink.abort(aborted)
    sink.abort(aborted)
    committed = prepared(sink, context(), 2, [{"n": 2, "word": "b"}])
    sink.commit(committed)
    sink.abort(committed)
    assert staged(tmp_path) == []
    assert len(data_files(tmp_path)) == 1


def test_recovery_removes_what_earlier_attempts_left_and_no_checkpoint_lists(tmp_path: Path) -> None:
    sink = parquet_sink(tmp_path / "out")
    listed = prepared(sink, context(attempt=1), 1, [{"n": 1, "word": "a"}])
    prepared(sink, context(attempt=1), 2, [{"n": 2, "word": "b"}])
    transaction = sink.begin("never prepared")
    sink.write(transaction, pa.RecordBatch.from_pylist([{"n": 3, "word": "c"}], schema=SCHEMA))
    assert len(staged(tmp_path)) == 3
    restarted = parquet_sink(tmp_path / "out")
    restarted.open(context(attempt=2))
    restarted.recover([listed])
    assert [path.name for path in staged(tmp_path)] == [Path(listed["files"][0]["staged"]).name]


def test_recovery_leaves_its_own_attempt_other_subtasks_other_sinks_and_other_incarnations_alone(
    tmp_path: Path,
) -> None:
    rows = [{"n": 1, "word": "a"}]
    prepared(parquet_sink(tmp_path / "out"), context(attempt=2, subtask=1, parallelism=2), 3, rows)
    prepared(parquet_sink(tmp_path / "out"), context(attempt=1, subtask=1, parallelism=2), 1, rows)
    prepared(parquet_sink(tmp_path / "out"), context(uid="other", parallelism=2), 1, rows)
    foreign = context(parallelism=2)
    foreign.incarnation = "inc-0"
    prepared(parquet_sink(tmp_path / "out"), foreign, 1, rows)
    restarted = parquet_sink(tmp_path / "out")
    restarted.open(context(attempt=2, subtask=0, parallelism=2))
    restarted.recover([])
    assert len(staged(tmp_path)) == 4


@pytest.mark.parametrize("make", [parquet_sink, json_sink, csv_sink])
def test_a_storage_put_back_from_a_copy_is_refused_while_files_of_later_attempts_are_staged(
    tmp_path: Path, make: Any
) -> None:
    """The copy knows attempt 1; attempts 2 and 3 left a file each, one open and one ready."""
    killed, rows = make(tmp_path / "out"), [{"n": 1, "word": "a"}]
    killed.open(context(attempt=2))
    killed.write(killed.begin("t"), pa.RecordBatch.from_pylist(rows, schema=SCHEMA))
    prepared(make(tmp_path / "out"), context(attempt=3, subtask=1, parallelism=2), 5, rows)
    for attempt, subtask, parallelism in ((2, 0, 1), (2, 1, 2)):
        sink = make(tmp_path / "out")
        sink.open(context(attempt=attempt, subtask=subtask, parallelism=parallelism))
        with pytest.raises(RestoreError, match=r"was written by attempt [23].*copy of the storage put back"):
            sink.recover([])
    assert len(staged(tmp_path)) == 2, "nothing was touched"
    sink = make(tmp_path / "out")
    sink.open(context(attempt=4, subtask=0, parallelism=2))
    sink.recover([])
    killed.close()


def test_a_storage_put_back_from_a_copy_is_refused_when_output_was_committed_since(tmp_path: Path) -> None:
    sink = parquet_sink(tmp_path / "out")
    before = prepared(sink, context(attempt=1), 1, [{"n": 1, "word": "a"}])
    sink.commit(before)
    sink.committed_everywhere(1, [before])
    since = prepared(sink, context(attempt=2), 2, [{"n": 2, "word": "b"}])
    sink.commit(since)
    sink.committed_everywhere(2, [since])
    restarted = parquet_sink(tmp_path / "out")
    restarted.open(context(attempt=2))
    with pytest.raises(
        RestoreError, match=r"checkpoint 2 was committed by attempt 2, which the checkpoint storage knows"
    ):
        restarted.recover([before])
    restarted.open(context(attempt=3))
    restarted.recover([since])
    again = prepared(restarted, context(attempt=3), 2, [{"n": 3, "word": "c"}])
    with pytest.raises(CommitLost, match="is there already"):
        restarted.commit(again)
    assert sorted(row["n"] for row in read_all(parquet_files(tmp_path / "out"))) == [1, 2], "nothing was replaced"


def committed(sink: FileSink, attempt: int, checkpoint: int, manifest: int | None = None) -> Any:
    """A row that became visible, and is listed by the checkpoint ``manifest``."""
    committable = prepared(sink, context(attempt=attempt), checkpoint, [{"n": checkpoint, "word": "a"}])
    sink.commit(committable)
    sink.committed_everywhere(manifest or checkpoint, [committable])
    return committable


@pytest.mark.parametrize("partition_by", [None, "word"])
def test_output_that_the_storage_knows_nothing_of_is_refused_though_no_later_attempt_wrote_it(
    tmp_path: Path, partition_by: str | None
) -> None:
    """A copy of the storage, taken and put back within one attempt: numbers of attempts go on as if nothing had happened."""
    sink = parquet_sink(tmp_path / "out", partition_by)
    known = committed(sink, attempt=1, checkpoint=1)
    committed(sink, attempt=1, checkpoint=2)
    for subtask, parallelism in ((0, 1), (2, 3)):
        restarted = parquet_sink(tmp_path / "out", partition_by)
        restarted.open(context(attempt=2, subtask=subtask, parallelism=parallelism, visible_up_to=1))
        with pytest.raises(RestoreError, match=r"was committed with checkpoint 2, which the checkpoint storage knows"):
            restarted.recover([known])
    for others in ({"visible_up_to": 2}, {}, {"visible_up_to": 1, "uid": "other"}):
        goes_on = parquet_sink(tmp_path / "out", partition_by)
        goes_on.open(context(attempt=2, **others))
        goes_on.recover([known])


@pytest.mark.parametrize("partition_by", [None, "word"])
def test_output_that_no_manifest_lists_yet_is_output_too(tmp_path: Path, partition_by: str | None) -> None:
    """The job ended between the rename and the manifest; then its storage went back in time."""
    sink = parquet_sink(tmp_path / "out", partition_by)
    known = committed(sink, attempt=1, checkpoint=1)
    sink.commit(prepared(sink, context(attempt=1), 2, [{"n": 2, "word": "a"}]))
    restarted = parquet_sink(tmp_path / "out", partition_by)
    restarted.open(context(attempt=2, visible_up_to=1))
    with pytest.raises(RestoreError, match=r"was committed with checkpoint 2, which the checkpoint storage knows"):
        restarted.recover([known])
    begun_again = parquet_sink(tmp_path / "out", partition_by)
    begun_again.open(context(attempt=2, visible_up_to=0))
    with pytest.raises(RestoreError, match=r"which the checkpoint storage knows nothing of"):
        begun_again.recover([])
    for others in ({"visible_up_to": 2}, {}, {"visible_up_to": 1, "uid": "other"}):
        goes_on = parquet_sink(tmp_path / "out", partition_by)
        goes_on.open(context(attempt=2, **others))
        goes_on.recover([known])


def test_output_that_a_later_checkpoint_only_carried_is_no_output_of_that_one(tmp_path: Path) -> None:
    """Checkpoint 3 was restored and told the sink of what checkpoint 2 had prepared; then it is damaged, and 2 restored."""
    sink = parquet_sink(tmp_path / "out")
    committed(sink, attempt=1, checkpoint=2, manifest=3)
    restarted = parquet_sink(tmp_path / "out")
    restarted.open(context(attempt=3, visible_up_to=2))
    restarted.recover([])


def test_after_rescaling_no_subtask_removes_what_a_checkpoint_lists_for_another(tmp_path: Path) -> None:
    """Four subtasks prepared; of two, each gets the committables of any two, and may not judge the rest."""
    rows = [{"n": 1, "word": "a"}]
    committables = [
        prepared(parquet_sink(tmp_path / "out"), context(subtask=s, parallelism=4), 1, rows) for s in range(4)
    ]
    orphan = parquet_sink(tmp_path / "out")
    orphan.open(context(subtask=3, parallelism=4))
    orphan.write(orphan.begin("open"), pa.RecordBatch.from_pylist(rows, schema=SCHEMA))
    sinks = []
    for subtask, mine in enumerate((committables[2:], committables[:2])):
        sink = parquet_sink(tmp_path / "out")
        sink.open(context(attempt=2, subtask=subtask, parallelism=2))
        sink.recover(mine)
        sinks.append((sink, mine))
    assert [path.suffix for path in staged(tmp_path)] == [".ready"] * 4
    for sink, mine in sinks:
        for committable in mine:
            sink.commit(committable)
    assert len(data_files(tmp_path)) == 4


def test_what_was_prepared_in_vain_before_a_rescale_goes_with_the_next_committed_checkpoint(tmp_path: Path) -> None:
    rows = [{"n": 1, "word": "a"}]
    prepared(parquet_sink(tmp_path / "out"), context(attempt=1, subtask=3, parallelism=4), 1, rows)
    sink = parquet_sink(tmp_path / "out")
    committable = prepared(sink, context(attempt=2), 2, rows)
    sink.commit(committable)
    assert len(staged(tmp_path)) == 1
    parquet_sink(tmp_path / "out").committed_everywhere(2, [committable])
    assert staged(tmp_path) == []


def test_manifests_show_a_checkpoint_only_when_all_its_subtasks_committed(tmp_path: Path) -> None:
    sinks = [parquet_sink(tmp_path / "out") for _ in range(2)]
    committables = [
        prepared(sink, context(subtask=s, parallelism=2), 1, [{"n": s, "word": "a"}]) for s, sink in enumerate(sinks)
    ]
    assert committed_files(tmp_path / "out") == []
    for sink, committable in zip(sinks, committables, strict=True):
        sink.commit(committable)
    assert committed_files(tmp_path / "out") == []
    for _ in range(2):
        parquet_sink(tmp_path / "out").committed_everywhere(1, committables)
    assert committed_files(tmp_path / "out") == [str(path) for path in data_files(tmp_path)]


def test_partitions_become_hive_folders_and_come_back_as_columns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_sink, "MOST_OPEN_FILES", 2)
    schema = pa.schema([("n", pa.int64()), ("country", pa.string()), ("year", pa.int64())])
    countries = ["de", "a/b=c%", None, "ü", "de", "fr"]
    rows = [{"n": n, "country": countries[n % 6], "year": 2000 + n % 2} for n in range(30)]
    sink = parquet_sink(tmp_path / "out", partition_by=["country", "year"])
    sink.check(schema)
    ctx = context(schema=schema)
    sink.open(ctx)
    transaction = sink.begin("t")
    for begin in (0, 10, 20):
        sink.write(transaction, pa.RecordBatch.from_pylist(rows[begin : begin + 10], schema=schema))
    ctx.checkpoint_id = 1
    sink.commit(sink.prepare(transaction))
    assert (tmp_path / "out" / "country=de" / "year=2000").is_dir()
    assert (tmp_path / "out" / "country=__HIVE_DEFAULT_PARTITION__").is_dir()
    back = read_all(parquet_files(tmp_path / "out"))
    assert sorted(back, key=lambda row: row["n"]) == rows
    with_polars = pl.read_parquet(tmp_path / "out" / "**/*.parquet", hive_partitioning=True)
    assert sorted(with_polars["n"].to_list()) == list(range(30))


def test_a_partition_whose_columns_name_begins_with_an_underscore_is_read_back(tmp_path: Path) -> None:
    schema = pa.schema([("n", pa.int64()), ("_day", pa.string())])
    rows = [{"n": n, "_day": "xy"[n % 2]} for n in range(4)]
    sink = parquet_sink(tmp_path / "out", partition_by="_day")
    sink.check(schema)
    ctx = context(schema=schema)
    sink.open(ctx)
    transaction = sink.begin("t")
    sink.write(transaction, pa.RecordBatch.from_pylist(rows, schema=schema))
    ctx.checkpoint_id = 1
    sink.commit(sink.prepare(transaction))
    assert sorted(read_all(parquet_files(tmp_path / "out")), key=lambda row: row["n"]) == rows


@pytest.mark.parametrize("form", ["parquet", "json", "csv"])
def test_rows_come_back_as_they_were_written(tmp_path: Path, form: str) -> None:
    schema = pa.schema(
        [
            ("n", pa.int64()),
            ("word", pa.string()),
            ("on", pa.date32()),
            ("at", pa.timestamp("us", "UTC")),
            ("price", pa.decimal128(10, 2)),
            ("good", pa.bool_()),
            ("x", pa.float64()),
        ]
    )
    at = datetime(2024, 1, 1, 10, 0, 0, 123456, tzinfo=UTC)
    rows = [
        dict(zip(schema.names, values, strict=True))
        for values in (
            (2**62, 'quote " comma , ü', date(2024, 2, 29), at, Decimal("1.50"), True, 0.1),
            (-1, "", date(1969, 1, 1), at.replace(microsecond=0), Decimal("-0.01"), False, 1e300),
            (None, None, None, None, None, None, None),
        )
    ]
    sink = {"parquet": parquet_sink, "json": json_sink, "csv": csv_sink}[form](tmp_path / "out")
    sink.check(schema)
    sink.commit(prepared(sink, context(schema=schema), 1, rows))
    source = {"parquet": parquet_files, "json": json_files, "csv": csv_files}[form](tmp_path / "out", schema)
    assert read_all(source) == rows


def test_closing_removes_what_was_never_prepared(tmp_path: Path) -> None:
    sink = json_sink(tmp_path / "out")
    sink.open(context())
    sink.write(sink.begin("t"), pa.RecordBatch.from_pylist([{"n": 1, "word": "a"}], schema=SCHEMA))
    assert len(staged(tmp_path)) == 1
    sink.close()
    assert staged(tmp_path) == []


def test_what_cannot_work_is_refused_before_anything_starts(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="is a file; a folder is needed"):
        parquet_sink(tmp_path / "file")
    with pytest.raises(ConfigError, match="s3://"):
        parquet_sink("s3://bucket/out")
    with pytest.raises(ConfigError, match=r"partition_by: no column 'wrod' \(did you mean 'word'\?\)"):
        parquet_sink(tmp_path / "out", partition_by="wrod").check(SCHEMA)
    with pytest.raises(ConfigError, match="names every column"):
        parquet_sink(tmp_path / "out", partition_by=["n", "word"]).check(SCHEMA)
    with pytest.raises(ConfigError, match="CSV cannot hold"):
        csv_sink(tmp_path / "out").check(pa.schema([("l", pa.list_(pa.int64()))]))
    with pytest.raises(ConfigError, match="JSON lines cannot hold bytes"):
        json_sink(tmp_path / "out").check(pa.schema([("b", pa.binary())]))
    with pytest.raises(ConfigError, match="CSV cannot hold bytes"):
        csv_sink(tmp_path / "out").check(pa.schema([("b", pa.binary())]))
    with pytest.raises(ConfigError, match="both must be writable"):
        parquet_sink(tmp_path / "file" / "out").check(SCHEMA)


@pytest.mark.parametrize("make", [parquet_sink, json_sink, csv_sink])
@pytest.mark.parametrize("path", ["x" * 246, "x" * 300 + "/out", "x/" * 3000, "a\0b", "file:", ""])
def test_what_can_be_no_folder_is_refused_at_the_call(make: Any, path: str) -> None:
    with pytest.raises(ConfigError, match=f"{make.__name__}: path="):
        make(path)


def test_the_longest_name_of_a_folder_can_be_staged_beside(tmp_path: Path) -> None:
    sink = parquet_sink(tmp_path / ("x" * 245))
    sink.commit(prepared(sink, context(), 1, [{"n": 1, "word": "a"}]))
    assert read_all(parquet_files(tmp_path / ("x" * 245))) == [{"n": 1, "word": "a"}]
