"""What the documentation says is there, is there; what is not, is marked *not yet*. Its first example runs."""

import re
import subprocess
from collections.abc import Iterator
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import typer

import cutwater as cw
from cutwater.checkpoint.statistics import CheckpointInfo, SubtaskCheckpointInfo
from cutwater.cli.main import app

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("docs/*.md"), ROOT / "README.md"])
KINDS = {"cw": cw, "job": cw.Job, "env": cw.Environment()}
COMMANDS = set(typer.main.get_command(app).commands)  # type: ignore[attr-defined]


def passages(page: Path) -> Iterator[str]:
    """Lines, and blocks of code with the paragraph that introduces them."""
    introduction, block, began = "", None, True
    for line in page.read_text().splitlines():
        if line.startswith("```"):
            if block is not None:
                yield f"{introduction}\n{block}"
            block = "" if block is None else None
        elif block is not None:
            block += f"{line}\n"
        else:
            if line:
                introduction = line if began else f"{introduction} {line}"
            began = not line
            yield line


def is_promised(passage: str) -> bool:
    return "not yet" not in passage.lower()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_name_and_command_on_a_page_exists_or_is_marked(page: Path) -> None:
    missing = []
    for passage in filter(is_promised, passages(page)):
        named = re.findall(r"\b(cw)\.(\w+)|\b(job|env)\.([a-z_]+)\b", passage)
        missing += [
            f"{owner}.{name}"
            for owner, name in ((a or b, x or y) for a, x, b, y in named)
            if not hasattr(KINDS[owner], name)
        ]
        missing += [word for word in re.findall(r"`cutwater ([a-z]+)", passage) if word not in COMMANDS]
    assert missing == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_page_and_example_that_a_page_points_to_exists(page: Path) -> None:
    text = page.read_text()
    linked = [page.parent / link for link in re.findall(r"\]\(([^)#:]+)\)", text)]
    named = [ROOT / path for path in re.findall(r"(?<![\w/])(?:docs|examples|bench|tests)/[\w/.-]+\.(?:md|py)\b", text)]
    assert [str(path) for path in [*linked, *named] if not path.exists()] == []


def test_the_pages_that_cite_rules_cite_rules_that_stand_in_semantics() -> None:
    rules = set(re.findall(r"^(\d+)\. ", (ROOT / "docs" / "semantics.md").read_text(), re.MULTILINE))
    cited = set(re.findall(r"\br(\d+)\b", (ROOT / "docs" / "seeds.md").read_text()))
    assert rules == {str(number) for number in range(1, 51)}
    assert cited <= rules


def test_every_rule_of_the_protocol_has_a_broken_variant_that_exists() -> None:
    rows = re.findall(
        r"^\| (\d+) \| (tests/\S+) \| (.+) \|$", (ROOT / "docs" / "semantics.md").read_text(), re.MULTILINE
    )
    for rule, file, variants in rows:
        code = (ROOT / file).read_text()
        for variant in re.findall(r"`(\w+)`", variants):
            assert re.search(rf"^(?:def|class) {variant}\(", code, re.MULTILINE), (
                f"rule {rule}: {variant} is not in {file}"
            )
    assert {int(rule) for rule, *_ in rows} >= {*range(9, 32)}


def test_the_pipeline_of_getting_started_passes_its_test(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (ROOT / "docs" / "getting-started.md").read_text()
    monkeypatch.chdir(tmp_path)
    (prepare,) = re.findall(r"```\n(mkdir .*)\n```", page)
    subprocess.run(prepare, shell=True, check=True, cwd=tmp_path)
    written, _, tested = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    names: dict[str, Any] = {"__name__": "getting_started"}
    exec(compile(written, "wordcount.py", "exec"), names)
    exec(compile(tested, "test_wordcount.py", "exec"), names)
    names["test_words_are_counted_once_over_a_failure"]()
    assert [path.name for path in tmp_path.iterdir()] == ["books"]


def test_the_pipelines_of_event_time_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs" / "event-time.md").read_text()
    written, windows, aggregates, *_ = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    names: dict[str, Any] = {"__name__": "event_time", "cw": cw, "pl": pl}
    exec(compile(written, "silence.py", "exec"), names)
    minutes = [datetime(2024, 5, 1, 12, minute, tzinfo=UTC) for minute in (0, 5, 20)]
    clicks = [("ann", minutes[0]), ("ann", minutes[1]), ("bob", minutes[2])]
    (tmp_path / "clicks").mkdir()
    (tmp_path / "clicks" / "today.json").touch()
    got = cw.testing.run(names["pipeline"], {"clicks": clicks})["silent"]
    assert [(row.user, row.last) for row in got] == [
        ("ann", int(minutes[1].timestamp() * 1000)), ("bob", int(minutes[2].timestamp() * 1000)),
    ]  # fmt: skip
    exec(compile(windows, "windows.py", "exec"), names)
    visits = [(user, "home", moment) for user, moment in clicks]
    counts = cw.testing.run(names["pipeline"], {"clicks": visits})["counts"]
    assert [(row.page, row.window_start, row.n) for row in counts] == [("home", moment, 1) for moment in minutes]
    exec(compile(aggregates, "spread.py", "exec"), names)
    (tmp_path / "trades").mkdir()
    (tmp_path / "trades" / "today.json").touch()
    trades = [("tea", 2.0, "ann", minutes[0]), ("tea", 5.0, "bob", minutes[0]), ("tea", 3.0, "ann", minutes[0])]
    told = cw.testing.run(names["pipeline"], {"trades": trades})
    assert [(row.n, row.buyers, row.prices, row.p90, row.spread) for row in told["minutes"]] == [
        (3, 2, [2.0, 5.0, 3.0], 5.0, 3.0)
    ]
    assert (told["so far"][-1].spread, told["so far"][-1].buyers) == (3.0, 2)


def test_the_pipeline_of_state_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    written, copies = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "state.md").read_text(), re.DOTALL)
    names: dict[str, Any] = {"__name__": "state", "cw": cw}
    exec(compile(written, "dedup.py", "exec"), names)
    (tmp_path / "messages").mkdir()
    (tmp_path / "messages" / "today.json").touch()
    again, later = [("ann", "hello")], cw.testing.ADVANCE("50 min")
    script = cw.testing.script(again, later, again, later, again, later, later, again)
    assert len(cw.testing.run(names["pipeline"], {"messages": script})["new"]) == 2
    exec(compile(copies, "latest.py", "exec"), names)

    def latest(env: cw.Environment) -> None:
        visits = env.read(cw.from_rows([], "user string, page string"), uid="visits")
        visits.key_by("user").process(names["Latest"], "user string, pages array<string>, n long").collect("out")

    told = cw.testing.run(latest, {"visits": [("ann", page) for page in "abcd"]})["out"]
    assert tuple(told[-1]) == ("ann", ["b", "c", "d"], 4)


def test_the_settings_of_aligned_and_unaligned_are_accepted() -> None:
    page = (ROOT / "docs" / "unaligned-checkpoints.md").read_text()
    chosen = []
    for written in re.findall(r"```python\n(.*?)```", page, re.DOTALL):
        env = cw.Environment()
        exec(compile(written, "settings.py", "exec"), {"env": env})
        assert env.checkpointing is not None
        chosen.append((env.checkpointing.unaligned, env.checkpointing.aligned_timeout))
    assert chosen == [(False, None), (True, None), (True, timedelta(seconds=2))]


def test_what_can_be_looked_at_of_a_checkpoint_is_there_for_it_and_for_each_subtask() -> None:
    page = (ROOT / "docs" / "unaligned-checkpoints.md").read_text()
    table = page.split("## Looking at it")[1].split("## ")[0]
    told = {
        name for line in re.findall(r"^\| (`.*?) \| ", table, re.MULTILINE) for name in re.findall(r"`(\w+)`", line)
    }
    assert "longest_gap" in told
    for kind in (CheckpointInfo, SubtaskCheckpointInfo):
        assert told <= {field.name for field in fields(kind)}


def test_the_pipeline_of_joins_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    written, broadcast = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "joins.md").read_text(), re.DOTALL)
    names: dict[str, Any] = {"__name__": "joins", "cw": cw}
    exec(compile(written, "rates.py", "exec"), names)
    for folder in ("payments", "rates", "clicks", "blocked"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "today.json").touch()
    asks = cw.testing.script(cw.testing.ADVANCE("1s"), [("EUR", 2.0), ("USD", 3.0)])
    got = cw.testing.run(names["pipeline"], {"payments": asks, "rates": [("EUR", 1.5)]})["out"]
    assert [tuple(row) for row in got] == [("EUR", 2.0, 1.5), ("USD", 3.0, None)]
    exec(compile(broadcast, "blocked.py", "exec"), names)
    clicks = cw.testing.script(cw.testing.ADVANCE("1s"), [("ann", "home"), ("bob", "home")])
    got = cw.testing.run(names["pipeline"], {"clicks": clicks, "blocked": ["bob"]})["out"]
    assert [row.user for row in got] == ["ann"]
