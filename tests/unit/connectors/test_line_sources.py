"""Text, JSON and CSV files: every line once whatever the cuts, and malformed lines named exactly."""

import json
import os
import tempfile
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cutwater.connectors import input_files, line_blocks
from cutwater.connectors.csv_lines import csv_files
from cutwater.connectors.json_lines import json_files
from cutwater.connectors.parquet import parquet_files
from cutwater.connectors.source import END
from cutwater.connectors.text import text_files
from cutwater.errors import ConfigError, DataError
from tests.rights import without_the_rights_of_root
from tests.unit.connectors.reading import CTX, NOW, read_all, read_split

SESSIONS = st.lists(st.tuples(st.integers(0, 3), st.integers(1, 7)), max_size=12)
ONE_FILE = settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], deadline=None)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of a few bytes, so that short files have all the seams that long ones have."""
    monkeypatch.setattr(line_blocks, "BLOCK_BYTES", 16)
    monkeypatch.setattr(input_files, "SPLIT_BYTES", 40)
    monkeypatch.setattr(input_files, "SMALLEST_SPLIT_BYTES", 11)


@ONE_FILE
@given(
    lines=st.lists(st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"]), max_size=20)),
    line_end=st.sampled_from(["\n", "\r\n"]),
    ends_with_newline=st.booleans(),
    parallelism=st.integers(1, 5),
    sessions=SESSIONS,
)
def test_every_line_is_read_once_in_order_however_sessions_and_splits_cut_the_file(
    tmp_path: Path, lines: list[str], line_end: str, ends_with_newline: bool, parallelism: int, sessions: Any
) -> None:
    if lines and (lines[0].startswith("\ufeff") or (not ends_with_newline and not lines[-1])):
        return
    content = line_end.join(lines) + (line_end if ends_with_newline and lines else "")
    (tmp_path / "a.txt").write_bytes(content.encode())
    read = read_all(text_files(tmp_path / "a.txt"), parallelism, sessions)
    assert [row["value"] for row in read] == lines


@ONE_FILE
@given(
    lines=st.lists(
        st.one_of(
            st.builds(lambda n, w: (json.dumps({"n": n, "w": w, "other": [1]}), (n, w)), st.integers(-9, 9), st.text()),
            st.sampled_from(
                ["", "  ", "x", '{"n": "a"}', "[1]", '{"n": 1}{"n": 2}', '{"n":', "1}", '{"n":{}', "}", "null", "{"]
            ).map(lambda text: (text, None)),
        ),
        max_size=20,
    ),
    parallelism=st.integers(1, 4),
    sessions=SESSIONS,
)
def test_json_lines_are_sound_or_malformed_one_by_one_however_the_file_is_cut(
    tmp_path: Path, lines: list[tuple[str, Any]], parallelism: int, sessions: Any
) -> None:
    path = tmp_path / "a.json"
    path.write_text("".join(text + "\n" for text, _ in lines), encoding="utf-8")
    source = json_files(path, "n long, w string", on_error="side")
    rows, side = [], []
    for split in source.splits_for(parallelism):
        more_rows, more_side = read_split(source, split, sessions)
        rows += more_rows
        side += more_side
    assert rows == [{"n": good[0], "w": good[1]} for _, good in lines if good is not None]
    bad = [(number, text) for number, (text, good) in enumerate(lines, 1) if good is None and text.strip()]
    assert [(record["line"], record["text"]) for record in side] == bad
    assert all(record["file"] == str(path) and record["error"] for record in side)


@ONE_FILE
@given(
    rows=st.lists(
        st.tuples(
            st.one_of(st.none(), st.integers(-(2**60), 2**60)),
            st.text(st.characters(exclude_characters="\r\n\0", exclude_categories=["Cs"]), max_size=9),
        ),
        max_size=20,
    ),
    parallelism=st.integers(1, 4),
    sessions=SESSIONS,
)
def test_csv_records_are_read_once_however_the_file_is_cut(
    tmp_path: Path, rows: list[tuple[int | None, str]], parallelism: int, sessions: Any
) -> None:
    lines = ["word,more,n\n"]
    for n, word in rows:
        quoted = word.replace('"', '""')
        lines.append(f'"{quoted}",x,{"" if n is None else n}\n')
    (tmp_path / "a.csv").write_text("".join(lines), encoding="utf-8")
    read = read_all(csv_files(tmp_path / "a.csv", "n long, word string"), parallelism, sessions)
    assert read == [{"n": n, "word": word} for n, word in rows]


@ONE_FILE
@given(rows=st.lists(st.text('a"\n,', max_size=6), max_size=15), sessions=SESSIONS)
def test_csv_records_may_span_lines_when_the_user_says_so(tmp_path: Path, rows: list[str], sessions: Any) -> None:
    content = "word\n" + "".join('"' + word.replace('"', '""') + '"\n' for word in rows)
    (tmp_path / "a.csv").write_text(content)
    source = csv_files(tmp_path / "a.csv", "word string", multiline=True)
    assert [row["word"] for row in read_all(source, 3, sessions)] == rows


def test_csv_lines_with_wrong_columns_values_or_quotes_are_named(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text('n,w\n1,a\n2,b,c\nx,d\n\n3,"open\n4,e\n5,f\rg,h\n6,i\n')
    source = csv_files(path, "n long, w string", on_error="side")
    assert len(source.splits()) == 2, "the header must be found by splits that do not begin the file"
    rows, side = [], []
    for split in source.splits():
        more_rows, more_side = read_split(source, split)
        rows += more_rows
        side += more_side
    assert rows == [{"n": 1, "w": "a"}, {"n": 4, "w": "e"}, {"n": 6, "w": "i"}]
    assert [(record["line"], record["text"]) for record in side] == [
        (3, "2,b,c"),
        (4, "x,d"),
        (6, '3,"open'),
        (8, "5,f\rg,h"),
    ]


def test_a_moment_without_a_zone_is_one_of_utc_in_csv_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_blocks, "BLOCK_BYTES", 100)
    monkeypatch.setattr(input_files, "SPLIT_BYTES", 1000)
    utc = partial(datetime, tzinfo=UTC)
    path = tmp_path / "a.csv"
    moments = {
        "2024-01-02 03:04:05": utc(2024, 1, 2, 3, 4, 5),
        "2024-01-02T03:04:05Z": utc(2024, 1, 2, 3, 4, 5),
        "2024-01-02": utc(2024, 1, 2),
        "2024-01-02 03:04:05.25+02:00": utc(2024, 1, 2, 1, 4, 5, 250000),
        "2024-01-02 03:04": utc(2024, 1, 2, 3, 4),
        "2024-01-02 03:04:05-0130": utc(2024, 1, 2, 4, 34, 5),
        "2024-01-02T03-01": utc(2024, 1, 2, 4),
        "": None,
        "nope": None,
        "2024-01-02 03:04:05 Rome": None,
    }
    path.write_text("n,t\n" + "".join(f"{n},{text}\n" for n, text in enumerate(moments)))
    for declared in ("t timestamp, n long", pa.schema([("t", pa.timestamp("ms", "Europe/Berlin")), ("n", pa.int64())])):
        source = csv_files(path, declared, on_error="side")
        read = [read_split(source, split) for split in source.splits()]
        rows, side = [row for rows, _ in read for row in rows], [each for _, side in read for each in side]
        assert [(row["n"], row["t"]) for row in rows] == list(enumerate(moments.values()))[:8]
        assert [(each["line"], each["text"]) for each in side] == [(10, "8,nope"), (11, "9,2024-01-02 03:04:05 Rome")]


def test_a_malformed_csv_line_is_told_with_its_line_column_and_value(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    types = {
        "at": "timestamp",
        "local": "timestamp_ntz",
        "on": "date",
        "n": "long",
        "x": "decimal(5,1)",
        "b": "boolean",
    }
    sound = {"at": "2024-01-02", "local": "2024-01-02", "on": "2024-01-02", "n": "1", "x": "1.5", "b": "true"}
    for column in types:
        bad = "1.55" if column == "x" else "nope"
        path.write_text(f"more,{','.join(types)}\n" + f"m,{','.join(sound.values())}\n" * 3, encoding="utf-8")
        with path.open("a", encoding="utf-8") as file:
            file.write(f"m,{','.join({**sound, column: bad}.values())}\n")
        with pytest.raises(DataError, match=rf"a\.csv, line 5: column '{column}': '{bad}' is no [a-z]+[^#]*\n"):
            read_all(csv_files(path, ", ".join(f"{name} {type}" for name, type in types.items())))
    path.write_text("n,w\n1,a\n2,b,c\n")
    with pytest.raises(DataError, match=r"a\.csv, line 3: 3 columns instead of 2\n"):
        read_all(csv_files(path, "n long, w string"))


def test_a_wrong_csv_header_fails_the_job_or_rules_out_the_file(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("m,w\n" + "1,a\n" * 30)
    with pytest.raises(DataError, match=r"a\.csv, line 1: the header: no column 'n'"):
        read_all(csv_files(path, "n long, w string"))
    assert read_all(csv_files(path, "n long, w string", on_error="skip"), 3) == []
    source = csv_files(path, "n long, w string", on_error="side")
    side = [record for split in source.splits_for(3) for record in read_split(source, split)[1]]
    assert [(record["line"], record["text"]) for record in side] == [(1, "m,w")]


def test_csv_without_header_takes_columns_in_the_order_of_the_schema(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('1;a\n2;""\n3;\n')
    source = csv_files(tmp_path / "a.csv", "n long, w string", header=False, delimiter=";")
    assert [tuple(row.values()) for row in read_all(source)] == [(1, "a"), (2, ""), (3, None)]


def test_a_malformed_line_fails_the_job_with_file_line_text_and_advice(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text('{"n": 1}\n' * 40 + '{"n": "many"}\n' + '{"n": 2}\n' * 40)
    with pytest.raises(DataError) as caught:
        read_all(json_files(path, "n long"), 4)
    message = str(caught.value)
    assert f"{path}, line 41: " in message
    assert '{"n": "many"}' in message
    assert 'on_error="skip"' in message


def test_a_file_with_nothing_but_null_is_malformed_and_takes_nothing_down(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("null\n null\nnull")
    assert read_all(json_files(tmp_path / "a.json", "n long", on_error="skip")) == []


def test_malformed_lines_are_dropped_when_told_so(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"n": 1}\nx\n{"n": 2}\n')
    assert read_all(json_files(tmp_path / "a.json", "n long", on_error="skip")) == [{"n": 1}, {"n": 2}]


def test_bytes_that_are_not_utf8_are_malformed_in_every_format(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b'{"w": "a"}\n{"w": "\xff"}\n{"w": "c"}\n')
    for source in (
        text_files(path, on_error="side"),
        json_files(path, "w string", on_error="side"),
        csv_files(path, "w string", header=False, on_error="side", delimiter=";"),
    ):
        side = [record for split in source.splits() for record in read_split(source, split)[1]]
        assert (2, '{"w": "\\xff"}') in [(record["line"], record["text"]) for record in side], source.describe()
        assert "UTF-8" in side[-1]["error"] or "quote" in side[-1]["error"]


def test_a_null_in_a_not_null_column_is_malformed(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"n": 1}\n{}\n{"n": 2}\n')
    source = json_files(tmp_path / "a.json", "n long not null", on_error="side")
    rows, side = [], []
    for split in source.splits():
        more_rows, more_side = read_split(source, split)
        rows, side = rows + more_rows, side + more_side
    assert rows == [{"n": 1}, {"n": 2}]
    assert [record["line"] for record in side] == [2]


def test_json_reads_dates_times_decimals_and_nested_values(tmp_path: Path) -> None:
    line = '{"d": "2024-02-29", "t": "2024-01-01T10:00:00Z", "x": "1.50", "s": {"day": "2024-01-02"}, "l": [1, null]}\n'
    (tmp_path / "a.json").write_text(line)
    schema = "d date, t timestamp, x decimal(10,2), s struct<day:date>, l array<long>"
    (row,) = read_all(json_files(tmp_path / "a.json", schema))
    assert row["d"] == date(2024, 2, 29)
    assert row["t"] == datetime(2024, 1, 1, 10, tzinfo=UTC)
    assert (row["x"], row["s"], row["l"]) == (Decimal("1.50"), {"day": date(2024, 1, 2)}, [1, None])


def test_position_is_behind_the_last_batch_returned_never_behind_what_was_parsed(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\ntwo\nthree\n")
    source = text_files(tmp_path / "a.txt")
    reader = source.open(source.splits()[0], None, CTX)
    assert reader.position() is None
    reader.next_batch(1, NOW)
    assert reader.position() == len("one\n")


def test_a_byte_order_mark_is_no_part_of_the_text(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"\xef\xbb\xbfone\ntwo\n")
    assert [row["value"] for row in read_all(text_files(tmp_path / "a.txt"))] == ["one", "two"]


def test_a_folder_is_read_with_what_lies_below_it_but_without_hidden_names(tmp_path: Path) -> None:
    for name in ("b.txt", "a.txt", "deep/c.txt", "_temporary/d.txt", ".e.txt", "_SUCCESS"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name + "\n")
    assert [row["value"] for row in read_all(text_files(tmp_path))] == ["a.txt", "b.txt", "deep/c.txt"]
    assert [row["value"] for row in read_all(text_files(f"{tmp_path}/*.txt"))] == ["a.txt", "b.txt"]
    assert [row["value"] for row in read_all(text_files(f"file://{tmp_path}/a.txt"))] == ["a.txt"]


def test_links_to_folders_are_followed_unless_they_lead_back(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "a.txt").write_text("a\n")
    (tmp_path / "in" / "deep").mkdir(parents=True)
    (tmp_path / "in" / "linked").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "in" / "deep" / "up").symlink_to(tmp_path / "in")
    assert [row["value"] for row in read_all(text_files(tmp_path / "in"))] == ["a"]


def test_folders_of_a_partition_are_data_even_if_the_columns_name_begins_like_a_hidden_one(tmp_path: Path) -> None:
    for name in (
        "_day=x/a.txt",
        "_day=x/_more=y/b.txt",
        "_day=x/_c.txt",
        "_temporary/d.txt",
        ".day=x/e.txt",
        "_f=g.txt",
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name + "\n")
    expected = ["_day=x/_more=y/b.txt", "_day=x/a.txt"]
    assert [row["value"] for row in read_all(text_files(tmp_path))] == expected
    assert [row["value"] for row in read_all(text_files(f"{tmp_path}/_day=*"))] == expected


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that everybody can enter: pytest's own are for their owner only."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        for name in ("a", "b"):
            (Path(folder) / name).mkdir()
            (Path(folder) / name / "x.txt").write_text(name + "\n")
        yield Path(folder)
        os.chmod(Path(folder) / "b", 0o755)


@pytest.mark.parametrize("rights", [0o000, 0o444])
@pytest.mark.parametrize("pattern", ["", "*", "*/x.txt", "**/*.txt", "[ab]/*"])
@pytest.mark.parametrize("watch", [False, True])
def test_a_folder_that_cannot_be_read_is_named_not_passed_over(
    open_folder: Path, pattern: str, rights: int, watch: bool
) -> None:
    (open_folder / "b").chmod(rights)
    with without_the_rights_of_root():
        with pytest.raises(DataError, match=rf"text_files: .*{open_folder}/b\b.* cannot be read: Permission denied; "):
            text_files(open_folder / pattern, watch=watch).splits()
        if watch:
            with pytest.raises(DataError, match="cannot be read: Permission denied"):
                text_files(open_folder / pattern, watch=True).discover([])
    (open_folder / "b").chmod(0o755)
    with without_the_rights_of_root():
        assert len(text_files(open_folder / pattern, watch=watch).splits()) == 2


def test_a_folder_that_may_be_entered_but_not_listed_is_enough_for_a_file_that_is_named(open_folder: Path) -> None:
    (open_folder / "b").chmod(0o111)
    with without_the_rights_of_root():
        assert len(text_files(open_folder / "*/x.txt").splits()) == 2


def test_a_folder_that_is_named_is_read_whatever_its_name_begins_with(tmp_path: Path) -> None:
    (tmp_path / "_in").mkdir()
    (tmp_path / "_in" / "a.txt").write_text("a\n")
    assert [row["value"] for row in read_all(text_files(tmp_path / "_in"))] == ["a"]


def test_a_folder_that_is_gone_when_the_job_starts_is_named(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    source = text_files(tmp_path / "in")
    (tmp_path / "in").rmdir()
    with pytest.raises(DataError, match=r"text_files: .*/in cannot be read: No such file or directory; "):
        source.splits()


def test_a_watched_folder_may_be_missing_and_each_file_that_appears_in_it_is_found_once(tmp_path: Path) -> None:
    source = text_files(tmp_path / "in", watch=True)
    assert not source.bounded
    known = list(source.splits())
    assert known == []
    for name in ("a.txt", "b.txt"):
        (tmp_path / "in").mkdir(exist_ok=True)
        (tmp_path / "in" / ".writing").write_text(name * 10 + "\n")
        assert source.discover(known) == []
        os.rename(tmp_path / "in" / ".writing", tmp_path / "in" / name)
        found = source.discover(known)
        assert {split["path"] for split in found} == {str(tmp_path / "in" / name)}
        known += found
    assert source.discover(known) == []


def test_a_missing_path_and_an_empty_glob_are_refused_at_the_call(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="does not exist"):
        text_files(tmp_path / "missing")
    with pytest.raises(ConfigError, match="no file matches"):
        json_files(tmp_path / "*.json", "n long")
    with pytest.raises(ConfigError, match="s3://"):
        text_files("s3://bucket/path")
    with pytest.raises(ConfigError, match=r"on_error='ignore'.*'fail', 'skip' and 'side'"):
        text_files(tmp_path, on_error="ignore")
    with pytest.raises(ConfigError, match="JSON lines cannot hold maps"):
        json_files(tmp_path, "m map<string,long>")
    with pytest.raises(ConfigError, match="CSV cannot hold"):
        csv_files(tmp_path, "l array<long>")


@pytest.mark.parametrize("watch", [False, True])
@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("file:", "names nothing"),
        ("", "is needed"),
        ("a\0b", "no path can"),
        ("\ud800", "no path can"),
        ("x" * 256, "256 bytes"),
        ("ü" * 128 + "/a", "256 bytes"),
        ("x/" * 3000, "at most 4095"),
    ],
)
def test_what_can_be_no_path_is_refused_at_the_call(path: str, told: str, watch: bool) -> None:
    for call in (
        lambda: text_files(path, watch=watch),
        lambda: json_files(path, "n long", watch=watch),
        lambda: csv_files(path, "n long", watch=watch),
        lambda: parquet_files(path, "n long", watch=watch),
    ):
        with pytest.raises(ConfigError, match=rf"path=.*{told}"):
            call()


def test_a_file_that_vanished_or_shrank_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("one\ntwo\n")
    source = text_files(path)
    (split,) = source.splits()
    path.write_text("one\n")
    with pytest.raises(DataError, match=r"a\.txt had 8 bytes and now ends at 4"):
        read_split(source, split)
    path.unlink()
    with pytest.raises(DataError, match=r"a\.txt cannot be read"):
        read_split(source, split)


def test_a_file_read_to_its_end_may_be_removed_before_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("one\n")
    source = text_files(path)
    (split,) = source.splits()
    path.unlink()
    assert source.open(split, 4, CTX).next_batch(10, NOW) is END


def test_lines_appended_after_a_file_was_found_are_not_read(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("one\n")
    source = text_files(path)
    (split,) = source.splits()
    with path.open("a") as file:
        file.write("two\n")
    assert read_split(source, split)[0] == [{"value": "one"}]


def test_a_compressed_file_is_refused_with_advice(tmp_path: Path) -> None:
    (tmp_path / "a.json.gz").write_bytes(b"x")
    with pytest.raises(DataError, match="unpack it first"):
        json_files(tmp_path, "n long").splits()


def test_side_output_is_declared_only_when_asked_for(tmp_path: Path) -> None:
    assert text_files(tmp_path).side_schemas == {}
    (schema,) = text_files(tmp_path, on_error="side").side_schemas.values()
    assert isinstance(schema, pa.Schema)
    assert schema.names == ["file", "line", "text", "error"]
