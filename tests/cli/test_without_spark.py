"""Commands that need no Spark: what they answer, how they end, and what they say about mistakes."""

import json
import math
import os
import shlex
import socket
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

import cutwater as cw
from cutwater.checkpoint.file_storage import FileStorage
from cutwater.checkpoint.job_store import JobStore
from cutwater.cli import doctor, settings
from cutwater.cli.answer import answer
from cutwater.cli.doctor import Health
from cutwater.cli.main import app
from cutwater.testing.clock import ManualClock
from cutwater.testing.simulation import Simulation

GOOD = "import cutwater as cw\n\ndef pipeline(env):\n    env.read(cw.sequence(3), uid='s').collect('all')\n"


def call(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def refused(result: Result, *, code: int = 2) -> str:
    """The one message of a command that refused; never a stack trace."""
    assert result.exit_code == code, result.output
    assert "Traceback" not in result.output
    return result.output


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv("PYTHONPATH", os.environ.get("PYTHONPATH", ""))
    return tmp_path / "my_pipeline.py"


# --- run: mistakes ----------------------------------------------------------------------------------------------------


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    assert "nowhere.py: there is no such file" in refused(call("run", tmp_path / "nowhere.py"))


def test_a_folder_is_no_pipeline(tmp_path: Path) -> None:
    assert "this is a folder" in refused(call("run", tmp_path))


def test_what_cannot_be_restored_is_told_before_spark_starts(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def spark_starts(*_: object) -> None:
        raise AssertionError("Spark starts")

    monkeypatch.setattr(cw.Environment, "start", spark_starts)
    file.write_text(GOOD)
    storage = f"file:{tmp_path}/stored"
    message = refused(call("run", file, "--checkpoints", storage, "--restore", "latest"), code=1)
    assert "job 'my_pipeline' has no completed checkpoint" in message
    message = refused(call("run", file, "--checkpoints", storage, "--restore", tmp_path / "chk-3"), code=1)
    assert "holds no completed checkpoint: there is no metadata.json" in message
    message = refused(call("run", file, "--set", "storage=memory", "--restore", "latest"), code=1)
    assert "job 'my_pipeline' has no completed checkpoint in memory" in message
    assert not (tmp_path / "stored").exists()
    _finished_job(tmp_path / "stored", "my_pipeline")
    (stored,) = (tmp_path / "stored").glob("my_pipeline/chk-*")
    for restore in ("latest", "auto", "fresh", stored):
        result = call("run", file, "--checkpoints", storage, "--restore", restore)
        assert "Spark starts" in str(result.exception)


def test_a_syntax_error_is_shown_with_file_and_line(file: Path) -> None:
    file.write_text("import cutwater as cw\n\ndef pipeline(env:\n    pass\n")
    message = refused(call("run", file))
    assert "my_pipeline.py:3:" in message
    assert "def pipeline(env:" in message


def test_a_file_without_pipeline_is_told_what_to_write(file: Path) -> None:
    file.write_text("x = 1\n")
    assert "def pipeline(env)" in refused(call("run", file))


def test_an_error_while_loading_names_the_users_line(file: Path) -> None:
    file.write_text("x = 1\ny = x / 0\n")
    assert "my_pipeline.py:2: ZeroDivisionError: division by zero" in refused(call("run", file))


def test_an_error_in_pipeline_names_the_users_line_not_ours(file: Path) -> None:
    file.write_text(GOOD.replace("cw.sequence(3)", "cw.sequence(-3)"))
    assert "my_pipeline.py:4: sequence: n=-3" in refused(call("run", file))


def test_an_unknown_column_is_refused_before_anything_starts(file: Path) -> None:
    file.write_text(GOOD.replace(".collect('all')", ".key_by('nope').agg(n=cw.count()).collect('all')"))
    message = refused(call("run", file))
    assert "my_pipeline.py:4:" in message
    assert "nope" in message


def test_a_pipeline_that_reads_nothing_is_refused(file: Path) -> None:
    file.write_text("def pipeline(env):\n    pass\n")
    assert "env.read" in refused(call("run", file))


def test_an_environment_function_must_return_an_environment(file: Path) -> None:
    file.write_text(GOOD + "\ndef environment():\n    return 7\n")
    assert "environment() returned 7" in refused(call("run", file))


@pytest.mark.parametrize(
    ("pair", "said"),
    [
        ("interval", "key=value"),
        ("nonsense=1", "'nonsense' is no setting"),
        ("interval=5", "interval=5"),
        ("mode=twice", "mode='twice'"),
        ("retain=0", "retain=0"),
    ],
)
def test_a_wrong_setting_is_refused_with_what_is_allowed(file: Path, pair: str, said: str) -> None:
    file.write_text(GOOD)
    assert said in refused(call("run", file, "--set", pair))


def test_a_parallelism_of_zero_is_refused(file: Path) -> None:
    file.write_text(GOOD)
    assert "parallelism" in refused(call("run", file, "--parallelism", "0"))


def test_a_master_that_is_none_is_named_with_what_is_allowed(file: Path) -> None:
    file.write_text(GOOD)
    message = refused(call("run", file, "--master", "nonsense"))
    assert "master='nonsense'" in message
    assert "spark://HOST:PORT" in message
    assert len(message.splitlines()) == 1


def test_a_master_that_does_not_answer_is_told_at_once(file: Path) -> None:
    file.write_text(GOOD)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    message = refused(call("run", file, "--master", f"spark://127.0.0.1:{port}"))
    assert f"spark://127.0.0.1:{port}" in message
    assert "nobody listens" in message


def test_mistakes_are_json_for_those_who_ask_for_json(tmp_path: Path) -> None:
    result = call("run", tmp_path / "nowhere.py", "--json")
    assert result.exit_code == 2
    told = json.loads(result.stdout)
    assert told["status"] == "failed"
    assert "there is no such file" in told["error"]


def test_what_the_file_prints_while_it_is_read_stays_out_of_the_json(file: Path) -> None:
    file.write_text(
        "print('loading')\n" + GOOD + "    env.explain()\n    raise ValueError('no')\n"
        "\ndef environment():\n    print('making it')\n    return cw.Environment()\n"
    )
    result = call("run", file, "--json")
    assert "ValueError: no" in json.loads(result.stdout)["error"]
    assert "loading" in result.stderr
    assert "making it" in result.stderr
    assert "slots" in result.stderr, "what explain() prints"


def test_a_file_that_exits_is_told_with_its_line(file: Path) -> None:
    file.write_text("import sys\nsys.exit(0)\n")
    assert "my_pipeline.py:2: SystemExit: 0" in refused(call("run", file))


def test_numbers_that_json_has_no_word_for_are_null(capsys: pytest.CaptureFixture[str]) -> None:
    def refuse(word: str) -> None:
        pytest.fail(f"{word} is not JSON")

    row = {"x": math.nan, "tags": [math.inf, 1.5], "inner": {"y": -math.inf}, "n": 3}
    answer({"collected": {"all": [row]}}, lambda: None, as_json=True)
    told = json.loads(capsys.readouterr().out, parse_constant=refuse)
    assert told == {"collected": {"all": [{"x": None, "tags": [None, 1.5], "inner": {"y": None}, "n": 3}]}}


def test_an_unknown_command_and_an_unknown_option_are_wrong_use() -> None:
    assert call("dance").exit_code == 2
    assert call("conf", "--loud").exit_code == 2


def test_settings_of_the_command_line_are_laid_over_those_of_the_program() -> None:
    said = settings.parse(["interval=2s", "retain=5", "spark.executor.memory=2g"], "file:elsewhere")
    own = cw.Checkpointing("1 min", storage="file:here", mode="at_least_once")
    merged = said.over(own)
    assert merged is not None
    assert (merged.interval.total_seconds(), merged.retain, merged.storage) == (2, 5, "file:elsewhere")
    assert merged.mode == "at_least_once"
    assert said.spark == {"spark.executor.memory": "2g"}
    assert settings.parse([], None).over(None) is None


# --- conf and doctor --------------------------------------------------------------------------------------------------


def test_the_version_is_that_of_the_project() -> None:
    written = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]["version"]
    told = call("--version")
    assert (told.exit_code, told.output) == (0, f"cutwater {written}\n")


def test_conf_prints_lines_for_spark_defaults() -> None:
    result = call("conf")
    assert result.exit_code == 0
    lines = dict(line.split() for line in result.stdout.splitlines() if line and not line.startswith("#"))
    assert lines["spark.task.maxFailures"] == "1"
    assert lines == {
        **json.loads(call("conf", "--json").stdout)["required"],
        **json.loads(call("conf", "--json").stdout)["recommended"],
    }


@pytest.mark.parametrize(
    ("told", "health"),
    [
        ('openjdk version "17.0.15" 2025-04-15', Health.GOOD),
        ('openjdk version "21" 2023-09-19', Health.GOOD),
        ('java version "1.8.0_392"', Health.WRONG),
        ('openjdk version "11.0.2"', Health.WRONG),
        ("nonsense", Health.WRONG),
    ],
)
def test_the_version_of_java_is_judged(told: str, health: Health) -> None:
    finding = doctor.judge_java("/usr/bin/java", told)
    assert finding.health is health
    assert bool(finding.advice) == (health is Health.WRONG)


@pytest.mark.parametrize(
    ("hard", "health"), [(512, Health.WRONG), (2048, Health.WARNING), (1 << 20, Health.GOOD), (-1, Health.GOOD)]
)
def test_the_limit_of_open_files_is_judged(hard: int, health: Health) -> None:
    assert doctor.judge_open_files(256, hard).health is health


@pytest.mark.parametrize("found", ["4.2.9", "4.30.0", None])
def test_doctor_finds_another_version_of_spark(found: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    assert doctor.spark_version().health is Health.GOOD
    monkeypatch.setattr(doctor, "_installed", lambda name: found)
    wrong = doctor.spark_version()
    assert wrong.health is Health.WRONG
    assert "pyspark==4.3.0" in wrong.advice


def test_doctor_without_java_fails_and_says_how_to_get_it(tmp_path: Path) -> None:
    environment = {**os.environ, "PATH": str(tmp_path), "JAVA_HOME": str(tmp_path)}
    command = [sys.executable, "-m", "cutwater.cli.main", "doctor"]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert result.returncode == 1, result.stderr
    assert "openjdk-17" in result.stdout
    assert "Jobs cannot run here" in result.stdout
    assert "Traceback" not in result.stderr


def test_a_java_home_that_points_nowhere_is_what_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = tmp_path / "java"
    java.touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("JAVA_HOME", "/no/such/jdk")
    advice = doctor.java().advice
    assert "JAVA_HOME is /no/such/jdk" in advice
    assert f"unset it: then {java} is used" in advice
    assert "apt-get" not in advice
    java.unlink()
    assert "apt-get install openjdk-17" in doctor.java().advice
    monkeypatch.delenv("JAVA_HOME")
    assert "no java was found" in doctor.java().advice


# --- checkpoints ------------------------------------------------------------------------------------------------------


def _finished_job(folder: Path, name: str) -> None:
    env = cw.Environment(parallelism=1, checkpointing=cw.Checkpointing("1 day", storage=f"file:{folder}"))
    env.read(cw.sequence(10), uid="numbers").key_by("value").agg(n=cw.count()).uid("counts").collect("counts")
    simulation = Simulation(env.define(name, 1), JobStore(FileStorage(str(folder)), name), ManualClock())
    while not simulation.finished:
        assert simulation.step() or simulation.advance_to_next_timer()


def test_stored_checkpoints_are_listed_by_job(tmp_path: Path) -> None:
    names = ["wordcount", "a job/with: odd name", "long " * 30]
    for name in names:
        _finished_job(tmp_path, name)
    result = call("checkpoints", f"file:{tmp_path}", "--json")
    assert result.exit_code == 0, result.output
    jobs = json.loads(result.stdout)["jobs"]
    assert set(jobs) == set(names)
    (checkpoint,) = jobs["wordcount"]["checkpoints"]
    assert checkpoint["kind"] == "final"
    assert Path(checkpoint["path"].removeprefix("file:"), "metadata.json").is_file()
    assert ["counts", "collect-counts"] in list(checkpoint["operators"].values())


def test_checkpoints_of_one_job_are_a_table_for_people(tmp_path: Path) -> None:
    _finished_job(tmp_path, "one")
    _finished_job(tmp_path, "two")
    result = call("checkpoints", tmp_path, "--job", "two")
    assert result.exit_code == 0, result.output
    assert "two" in result.stdout
    assert "one" not in result.stdout.replace(str(tmp_path), "")
    assert "final" in result.stdout


def test_a_damaged_checkpoint_is_shown_as_such(tmp_path: Path) -> None:
    _finished_job(tmp_path, "one")
    (metadata,) = tmp_path.glob("one/chk-*/metadata.json")
    metadata.write_bytes(metadata.read_bytes().replace(b'"job":"one"', b'"job":"0ne"'))
    jobs = json.loads(call("checkpoints", tmp_path, "--json").stdout)["jobs"]
    assert jobs["one"]["checkpoints"] == []
    assert "sha256" in jobs["one"]["damaged"][0]["problem"]


def test_a_folder_or_job_that_is_not_there_is_wrong_use(tmp_path: Path) -> None:
    assert "no folder" in refused(call("checkpoints", tmp_path / "nothing"))
    assert "live and die with the driver" in refused(call("checkpoints", "memory"))
    _finished_job(tmp_path, "one")
    assert "it holds: one" in refused(call("checkpoints", tmp_path, "--job", "three"))
    assert call("checkpoints", tmp_path).exit_code == 0


def test_a_job_is_found_by_its_own_folder_and_by_its_name_in_the_default_storage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ["orders", "a job/with: odd name", "long " * 30, "other"]
    for name in names:
        _finished_job(tmp_path / "checkpoints", name)
    monkeypatch.chdir(tmp_path)
    for folder in (tmp_path / "checkpoints").iterdir():
        (found,) = json.loads(call("checkpoints", folder, "--json").stdout)["jobs"]
        assert found in names
        names.remove(found)
    assert names == []
    assert list(json.loads(call("checkpoints", "checkpoints/orders", "--json").stdout)["jobs"]) == ["orders"]
    (tmp_path / "other").mkdir()
    for name in ("orders", "a job/with: odd name", "long " * 30, "other"):
        assert list(json.loads(call("checkpoints", name, "--json").stdout)["jobs"]) == [name]
    message = refused(call("checkpoints", "odrers")).replace("\n", " ")
    assert "there is no folder" in message
    assert "orders, other" in message
    (checkpoint,) = tmp_path.glob("checkpoints/orders/chk-*")
    assert f"give the storage folder: {tmp_path}/checkpoints" in refused(call("checkpoints", checkpoint))


def test_a_job_without_a_completed_checkpoint_is_told_as_such(tmp_path: Path) -> None:
    JobStore(FileStorage(str(tmp_path)), "orders").acquire_attempt()
    for place in (tmp_path, tmp_path / "orders"):
        result = call("checkpoints", place)
        assert result.exit_code == 0, result.output
        assert "orders has no completed checkpoint" in result.stdout
        assert "triggered at" not in result.stdout


def test_an_empty_folder_holds_no_checkpoints(tmp_path: Path) -> None:
    result = call("checkpoints", tmp_path)
    assert result.exit_code == 0
    assert "holds no checkpoints" in result.stdout.replace("\n", " ")


# --- a reader that leaves ---------------------------------------------------------------------------------------------


def test_a_command_whose_reader_left_ends_as_other_tools_do() -> None:
    """128 + SIGPIPE and not a word, whether it notices while it prints or when Python writes what is left in its buffers."""
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "cutwater.cli.main", "conf", "--json"],
            stdout=writing, stderr=subprocess.PIPE, text=True, timeout=120, check=False,
        )  # fmt: skip
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.parametrize(
    ("unbuffered", "command", "code", "told"),
    [
        ("", ["conf"], 1, "the standard output cannot be written: No space left on device\n"),
        ("1", ["conf", "--json"], 1, "the standard output cannot be written: No space left on device\n"),
        ("", ["run", "--json", "nowhere.py"], 2, "nowhere.py: there is no such file."),
    ],
)
def test_a_standard_output_without_room_is_told_in_words_and_by_the_exit_code(
    unbuffered: str, command: list[str], code: int, told: str
) -> None:
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run(
            [sys.executable, "-m", "cutwater.cli.main", *command], env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
            stdout=full, stderr=subprocess.PIPE, text=True, timeout=120, check=False,
        )  # fmt: skip
    assert ended.stderr.startswith(f"cutwater: {told}"), ended.stderr
    assert "Exception ignored" not in ended.stderr and "Traceback" not in ended.stderr
    assert ended.returncode == code


def test_a_closed_standard_output_is_no_stack_trace() -> None:
    command = f"{shlex.quote(sys.executable)} -m cutwater.cli.main conf >&-"
    ended = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=120, check=False)
    assert "Traceback" not in ended.stderr
    assert ended.returncode == 0
