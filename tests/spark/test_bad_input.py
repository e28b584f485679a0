"""Bad input at run time: the first line says what, where and what to do, and no stack trace comes before it."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import cutwater as cw

GOOD = [{"n": n, "word": f"w{n}"} for n in range(20)]
BAD_LINE = '{"n": "seven", "word"'


def environment(folder: Path) -> cw.Environment:
    return cw.Environment(
        parallelism=1,
        checkpointing=cw.Checkpointing("200ms", storage=f"file:{folder / 'checkpoints'}"),
        restart=cw.no_restart(),
    )


def failure(env: cw.Environment, name: str) -> list[str]:
    """The lines of the message. The first is for people."""
    with pytest.raises(cw.JobFailed) as failed:
        env.execute(name)
    lines = str(failed.value).splitlines()
    assert "Traceback" not in lines[0]
    return lines


def broken_json(folder: Path) -> Path:
    lines = [json.dumps(row) for row in GOOD]
    file = folder / "in.json"
    file.write_text("\n".join([*lines[:7], BAD_LINE, *lines[7:]]) + "\n")
    return file


def test_a_map_result_that_does_not_fit_names_operator_column_and_value(tmp_path: Path) -> None:
    env = environment(tmp_path)
    rows = env.read(cw.sequence(10), uid="numbers")
    rows.map(lambda r: (r.value, "many" if r.value == 7 else 1), "n long, count long").named("Parse").uid(
        "parse"
    ).collect("out")
    first = failure(env, "unfit")[0]
    assert first.startswith("parse[0]: ")
    assert "map 'Parse' (parse)" in first
    assert "'count'" in first
    assert "'many'" in first


def test_a_function_that_raises_is_told_with_its_line_and_the_row(tmp_path: Path) -> None:
    env = environment(tmp_path)
    env.read(cw.sequence(10), uid="numbers").map(lambda r: (1 // (r.value - 3),), "n long").uid("divide").collect("out")
    lines = failure(env, "raises")
    assert lines[0].startswith("divide[0]")
    assert "ZeroDivisionError" in lines[0]
    assert "test_bad_input.py:" in lines[0]
    assert "value=3" in lines[0]
    assert lines[1].startswith("No restart: ")


def test_a_malformed_line_fails_the_job_with_file_line_and_choices(tmp_path: Path) -> None:
    file = broken_json(tmp_path)
    env = environment(tmp_path)
    env.read(cw.json_files(file, "n long, word string"), uid="in").collect("out")
    lines = failure(env, "malformed-fail")
    assert lines[0].startswith("in[0]: ")
    assert f"{file}, line 8: " in lines[0]
    assert BAD_LINE in lines[1]
    assert 'on_error="skip"' in lines[2]
    assert 'side_output("malformed")' in lines[2]


def test_malformed_lines_are_skipped_or_set_aside_as_asked(tmp_path: Path) -> None:
    file = broken_json(tmp_path)
    env = environment(tmp_path)
    env.read(cw.json_files(file, "n long, word string", on_error="skip"), uid="skipping").collect("skipped")
    aside = env.read(cw.json_files(file, "n long, word string", on_error="side"), uid="aside")
    aside.collect("kept")
    aside.side_output("malformed").collect("malformed")
    result = env.execute("malformed-tolerated")
    expected = [(row["n"], row["word"]) for row in GOOD]
    assert [tuple(row) for row in result.rows("skipped")] == expected
    assert [tuple(row) for row in result.rows("kept")] == expected
    (malformed,) = result.rows("malformed")
    assert (malformed.file, malformed.line, malformed.text) == (str(file), 8, BAD_LINE)
    assert malformed.error


def test_a_file_that_is_gone_when_its_turn_comes_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.txt").write_text("one\ntwo\n")
    env = environment(tmp_path)
    env.read(Vanishing(folder), uid="texts").collect("out")
    lines = failure(env, "gone")
    assert lines[0].startswith("texts[0]: ")
    assert str(folder / "a.txt") in lines[0]


class Vanishing(cw.Source):
    """Text files, the first of which vanishes after it was found."""

    schema = "value string"

    def __init__(self, folder: Path) -> None:
        self.files = cw.text_files(folder)

    def splits_for(self, parallelism: int) -> Any:
        found = self.files.splits_for(parallelism)
        for file in Path(self.files.files.path).iterdir():
            file.unlink()
        return found

    def splits(self) -> Any:
        return self.splits_for(1)

    def open(self, split: Any, position: Any, ctx: Any) -> Any:
        return self.files.open(split, position, ctx)


def test_a_checkpoint_that_is_not_there_cannot_be_restored(tmp_path: Path) -> None:
    for restore, told in (("latest", "has no completed checkpoint"), (str(tmp_path / "nowhere"), "nowhere")):
        env = environment(tmp_path)
        env.read(cw.sequence(10), uid="numbers").collect("out")
        with pytest.raises(cw.RestoreError) as refused:
            env.start("never-ran", restore)
        assert told in str(refused.value)
        assert "restore=" in str(refused.value)


def test_a_session_with_the_wrong_settings_is_refused_with_each_of_them(spark: SparkSession) -> None:
    assert cw.check_session(spark) == []
    other = spark.newSession()
    other.conf.set("spark.sql.adaptive.enabled", "true")
    other.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "10000")
    told = cw.check_session(other)
    assert told == [
        "spark.sql.adaptive.enabled is true, and must be false: adaptive execution would re-plan the running stages.",
        (
            "spark.sql.execution.arrow.maxRecordsPerBatch is 10000, and must be 1: "
            "a row of the exchange must be handed over at once."
        ),
    ]
    with pytest.raises(cw.PlanError) as refused:
        cw.Environment(spark=other)
    assert all(problem in str(refused.value) for problem in told)
    assert (
        str(refused.value)
        .splitlines()[-1]
        .startswith("Make the session with SparkSession.builder.config(conf=cw.spark_conf(")
    )


PLAIN_SESSION = """
import os, sys
from pyspark.sql import SparkSession
import cutwater as cw
builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").config("spark.speculation", "true")
spark = builder.config("spark.dynamicAllocation.enabled", "true").getOrCreate()
for problem in cw.check_session(spark):
    print("PROBLEM", problem)
try:
    cw.Environment(spark=spark)
except cw.PlanError as error:
    print("REFUSED", len(str(error).splitlines()))
spark.stop()
conf = cw.spark_conf(master="local[2]").set("spark.ui.enabled", "false")
spark = SparkSession.builder.config(conf=conf).getOrCreate()
env = cw.Environment(spark=spark, parallelism=2)
env.read(cw.sequence(10)).key_by("value").agg(n=cw.count()).write(cw.discard())
try:
    env.execute("small")
except cw.PlanError as error:
    print("SLOTS", error)
fitted = cw.Environment(spark=spark)
fitted.read(cw.sequence(10)).key_by("value").agg(n=cw.count()).collect("counts")
print("FITTED", len(fitted.execute("fitted").rows("counts")))
spark.stop()
"""


def test_a_users_own_session_hears_which_settings_and_slots_are_missing(tmp_path: Path) -> None:
    """In a process of its own: a JVM has one SparkContext."""
    environ = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"}
    ran = subprocess.run(
        [sys.executable, "-c", PLAIN_SESSION], cwd=tmp_path, env=environ, capture_output=True, text=True, check=False
    )
    told = ran.stdout.splitlines()
    assert ran.returncode == 0, ran.stderr
    problems = [line for line in told if line.startswith("PROBLEM")]
    for setting in (
        "speculation is true",
        "dynamicAllocation.enabled is true",
        "python.udf.pipelined.enabled is not set",
    ):
        assert any(f"spark.{setting}, and must be " in problem for problem in problems), told
    assert any(line.startswith("REFUSED") and int(line.split()[1]) == len(problems) + 2 for line in told), told
    (slots,) = [line for line in told if line.startswith("SLOTS")]
    assert "needs 4 slots at the same time, and the session (master local[2]) has 2, 2 of them free" in slots
    assert "Use master local[4] or more" in slots
    assert "FITTED 10" in told
