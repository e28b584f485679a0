"""What happens when something breaks: who is blamed, who must be dead, what is restored, and what is refused."""

import json
import shutil
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import polars as pl
import psutil
import pytest
from pyspark.sql import SparkSession

import cutwater as cw
from cutwater.connectors.manifest import committed_files
from cutwater.connectors.staging import checkpoint_of
from cutwater.errors import RestoreError, StorageInUse
from tests.spark.troubled import ForgetfulSink, StuckOnce, divide
from tests.spark.workers import completed_checkpoints, wait_until, worker_pids

pytestmark = pytest.mark.timeout(600)


def environment(folder: Path, interval: str = "200ms", restart: Any = None, **settings: Any) -> cw.Environment:
    checkpointing = cw.Checkpointing(interval, storage=f"file:{folder / 'checkpoints'}", **settings)
    return cw.Environment(parallelism=2, checkpointing=checkpointing, restart=restart or cw.no_restart())


def count_by_key(env: cw.Environment, folder: Path, records: int | None, rate: float, keys: int = 50) -> None:
    numbers = env.read(cw.sequence(records, rate=rate), uid="numbers").with_columns(k=pl.col("value") % keys)
    numbers.key_by("k").agg(n=cw.count()).uid("counts").write(cw.parquet_sink(folder / "out"), uid="out")


def first_line(error: BaseException) -> str:
    return str(error).splitlines()[0]


def test_the_users_line_is_the_root_cause_and_not_what_spark_saw_of_it(tmp_path: Path) -> None:
    env = environment(tmp_path)
    env.read(cw.sequence(1000), uid="numbers").map(divide, "x double").uid("halves").collect("x")
    with pytest.raises(cw.JobFailed) as failed:
        env.start("divide").wait("200s")
    line = first_line(failed.value)
    assert "halves[0]" in line and "ZeroDivisionError" in line and "troubled.py:" in line, line
    assert "park" not in line.replace("tests/spark", ""), line
    assert "No restart: restarting is switched off" in str(failed.value)
    assert "def divide" in str(failed.value) or "in divide" in str(failed.value)


def test_a_job_that_fails_again_and_again_is_given_up_after_the_attempts_it_has(tmp_path: Path) -> None:
    env = environment(tmp_path, restart=cw.fixed_delay(attempts=2, delay="10ms"))
    env.read(cw.sequence(1000), uid="numbers").map(divide, "x double").uid("halves").collect("x")
    job = env.start("again")
    with pytest.raises(cw.JobFailed, match="ZeroDivisionError") as failed:
        job.wait("300s")
    assert "3 failures, and fixed_delay allows 2 restarts" in str(failed.value)
    assert sum("restarting in" in line for line in job.log) == 2
    assert job.status == "failed"


def test_output_that_is_gone_for_good_fails_the_job_at_once_and_costs_no_restart(tmp_path: Path) -> None:
    env = environment(tmp_path, restart=cw.fixed_delay(attempts=1000, delay="10ms"))
    env.read(cw.sequence(None, rate=1000), uid="numbers").write(ForgetfulSink(), uid="out")
    job = env.start("forgetful")
    with pytest.raises(cw.JobFailed, match="has expired") as failed:
        job.wait("200s")
    assert first_line(failed.value).startswith("out[") and "CommitLost" in first_line(failed.value)
    assert not any("restarting in" in line for line in job.log)


def test_a_job_that_spark_canceled_with_all_others_goes_on_and_says_who_did_that(
    tmp_path: Path, spark: SparkSession
) -> None:
    """Ctrl-C in ``job.wait()``: PySpark's handler cancels every job of the session."""
    env = environment(tmp_path, restart=cw.fixed_delay(attempts=1, delay="10ms"))
    count_by_key(env, tmp_path, 6000, rate=1000)
    job = env.start("canceled by spark")
    wait_until(lambda: completed_checkpoints(job) >= 1, "a checkpoint")
    spark.sparkContext.cancelAllJobs()
    assert job.wait("200s").attempts == 2
    assert any(line.startswith("Spark canceled all jobs of its session: Ctrl-C") for line in job.log), job.log


def test_a_worker_stuck_in_a_users_call_is_dead_before_the_next_attempt_opens_anything(tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    notes.mkdir()
    env = environment(tmp_path, restart=cw.fixed_delay(attempts=3, delay="10ms"))
    numbers = env.read(cw.sequence(40_000, rate=20_000), uid="numbers").rebalance()
    stuck = numbers.process(StuckOnce(notes), "value long").uid("stuck")
    stuck.write(cw.parquet_sink(tmp_path / "out"), uid="out")
    job = env.start("zombie")
    result = job.wait("400s")
    assert result.status == "finished"
    assert (notes / "stuck").exists(), "nobody was ever stuck: the test shows nothing"
    opened = {path.name: path.read_text() for path in notes.glob("opened-*")}
    assert opened and set(opened.values()) == {"alone"}, opened
    assert not psutil.pid_exists(int((notes / "stuck").read_text()))
    assert not (notes / "woke").exists()
    values = pl.read_parquet(str(tmp_path / "out" / "**" / "*.parquet"))["value"]
    assert sorted(values) == list(range(40_000))


def test_a_loop_that_stays_in_one_call_is_told_with_where_it_is_and_killed_by_nobody(tmp_path: Path) -> None:
    release = tmp_path / "release"

    def lingers_in_a_lookup(row: Any) -> Any:
        if row.value == 50:
            wait_until(release.exists, "the lookup was answered")
        return row

    env = environment(tmp_path)
    numbers = env.read(cw.sequence(100), uid="numbers").rebalance()
    numbers.map(lingers_in_a_lookup, "value long").uid("lookup").collect("out")
    job = env.start("lingering")
    wait_until(lambda: any("has been in one call" in line for line in job.log), "a word about the slow loop")
    (told,) = [line for line in job.log if "has been in one call" in line]
    assert told.startswith("lookup[") and "lingers_in_a_lookup" in told
    release.touch()
    result = job.wait("200s")
    assert (result.attempts, len(result.rows("out"))) == (1, 100)


def test_a_storage_folder_in_use_is_refused_and_free_again_afterwards(tmp_path: Path) -> None:
    first = environment(tmp_path)
    count_by_key(first, tmp_path, None, rate=1000)
    job = first.start("owner")
    second = environment(tmp_path)
    count_by_key(second, tmp_path, 100, rate=1000)
    with pytest.raises(StorageInUse, match=r"'owner' in file:.* is run by another driver: pid \d+"):
        second.start("owner")
    job.cancel()
    assert second.start("owner", restore="fresh").wait("200s").status == "finished"


def test_a_driver_whose_folder_was_deleted_makes_way_for_the_one_that_starts_there(tmp_path: Path) -> None:
    def begin(restore: str) -> cw.Job:
        env = environment(tmp_path, restart=cw.fixed_delay(attempts=1000, delay="200ms"))
        count_by_key(env, tmp_path, None, rate=1000)
        return env.start("same", restore)

    def files_of(incarnation: str) -> set[str]:
        return {path.name for path in (tmp_path / "out").rglob("*.parquet") if incarnation in path.name}

    first = begin("auto")
    wait_until(lambda: list((tmp_path / "out").rglob("*.parquet")), "output of the first")
    (tmp_path / "checkpoints").rename(tmp_path / "deleted")  # at once: its workers store state there all the while
    second = begin("fresh")
    try:
        wait_until(lambda: completed_checkpoints(second) >= 1, "a checkpoint of the second")
        incarnations = {path.name.split("-0000000")[0] for path in (tmp_path / "out").rglob("*.parquet")}
        shown = {each: files_of(each) for each in incarnations}
        with pytest.raises(cw.JobFailed, match=r"of another driver .* took over job 'same'"):
            first.wait("60s")
        own = json.loads(max((tmp_path / "checkpoints/same/attempts").glob("*.start.json")).read_text())["incarnation"]
        before = [each for each in incarnations if own not in each]
        assert len(before) == 1
        wait_until(lambda: completed_checkpoints(second) >= 4, "the second goes on")
        assert files_of(before[0]) == shown[before[0]]
        assert not any("restarting in" in line for line in second.log), second.log
    finally:
        second.cancel()


def test_a_cancel_right_behind_the_start_is_not_lost(tmp_path: Path) -> None:
    for number in range(3):
        env = environment(tmp_path)
        count_by_key(env, tmp_path, None, rate=1000)
        job = env.start(f"canceled-{number}")
        job.cancel()
        assert job.status == "canceled"


def damage_committed(folder: Path) -> int:
    """Flip one byte of a state file of every checkpoint from the last committed one on; the id of that one."""
    job = folder / "checkpoints" / "damaged"
    committed = max(int(path.stem) for path in (job / "commits").glob("*.json"))
    for state in job.glob("chk-*/*.arrow"):
        if int(state.parent.name.removeprefix("chk-")) >= committed:
            content = bytearray(state.read_bytes())
            content[len(content) // 2] ^= 0xFF
            state.write_bytes(content)
    return committed


def test_a_damaged_checkpoint_is_never_passed_over_in_silence(tmp_path: Path) -> None:
    def job_with(on_damaged: str, records: int | None) -> cw.Environment:
        env = environment(tmp_path, on_damaged=on_damaged, retain=5)
        count_by_key(env, tmp_path, records, rate=20_000)
        return env

    job = job_with("fail", None).start("damaged")
    wait_until(lambda: completed_checkpoints(job) >= 5, "five checkpoints completed")
    job.cancel()
    committed = damage_committed(tmp_path)
    with pytest.raises((RestoreError, cw.JobFailed)) as refused:
        job_with("fail", None).start("damaged", restore="latest").wait("200s")
    report = str(refused.value)
    assert f"checkpoint {committed}" in report and "twice" in report and "on_damaged='fallback'" in report, report
    again = job_with("fallback", None).start("damaged", restore="latest")
    before = completed_checkpoints(again)
    wait_until(lambda: completed_checkpoints(again) > before, "a checkpoint completed after the fallback")
    again.cancel()
    assert any("Falls back" in line and f"checkpoint {committed}" in line for line in again.log), again.log


def test_a_copy_of_the_storage_that_is_put_back_within_an_attempt_is_refused_by_the_output_that_went_on(
    tmp_path: Path,
) -> None:
    """Both runs count attempts and checkpoints alike: only what was committed meanwhile tells that the storage went back."""

    def start() -> cw.Job:
        env = environment(tmp_path, interval="1h", restart=cw.fixed_delay(attempts=3, delay="10ms"))
        numbers = env.read(cw.sequence(None, rate=50), uid="numbers")
        numbers.filter(pl.col("value") % 10 == 9).write(cw.parquet_sink(tmp_path / "out"), uid="out")
        return env.start("copied")

    def shown() -> list[str]:
        return committed_files(tmp_path / "out")

    job = start()
    wait_until(lambda: sum(each.records_in for each in job.progress.values()) > 0, "records")
    copied = job.trigger_checkpoint().id or 0
    shutil.copytree(tmp_path / "checkpoints", tmp_path / "copy", ignore=shutil.ignore_patterns(".tmp-*"))
    wait_until(
        lambda: bool(job.trigger_checkpoint()) and max(map(checkpoint_of, shown()), default=0) > copied,
        "output behind the copy",
    )
    job.cancel()
    before = shown()
    shutil.rmtree(tmp_path / "checkpoints")
    shutil.copytree(tmp_path / "copy", tmp_path / "checkpoints")
    again = start()
    try:
        with pytest.raises(
            cw.JobFailed, match=r"was committed with checkpoint \d+, which the checkpoint storage"
        ) as failed:
            again.wait("100s")
    finally:
        again.cancel()
    assert first_line(failed.value).startswith("out[") and "RestoreError" in first_line(failed.value)
    assert not any("restarting in" in line for line in again.log)
    assert shown() == before


def test_what_killed_workers_left_half_written_is_gone_when_the_job_has_started_anew(tmp_path: Path) -> None:
    def half_written() -> set[Path]:
        return set((tmp_path / ".out.cutwater").rglob("*.open"))

    env = environment(tmp_path, interval="1s")
    count_by_key(env, tmp_path, None, rate=20_000)
    job = env.start("half-written")
    wait_until(lambda: completed_checkpoints(job) >= 1 and half_written(), "files are being written")
    for pid in worker_pids(job).values():
        with suppress(psutil.NoSuchProcess):  # Spark ends the others soon after the first has died
            psutil.Process(pid).kill()
    with pytest.raises(cw.JobFailed, match="died"):
        job.wait("200s")
    left = half_written()
    assert left, "the workers removed their files: the test shows nothing"
    again = environment(tmp_path)
    count_by_key(again, tmp_path, 10_000, rate=10_000)
    assert again.start("half-written", restore="fresh").wait("200s").status == "finished"
    assert not half_written()


def test_a_storage_that_is_away_while_the_job_restarts_costs_attempts_and_not_the_job(tmp_path: Path) -> None:
    env = environment(tmp_path, restart=cw.fixed_delay(attempts=50, delay="200ms"))
    count_by_key(env, tmp_path, None, rate=1000)
    job = env.start("away")
    wait_until(lambda: completed_checkpoints(job) >= 2, "two checkpoints completed")
    attempts = tmp_path / "checkpoints" / "away" / "attempts"
    attempts.rename(tmp_path / "attempts")
    attempts.write_text("in the way")
    psutil.Process(next(iter(worker_pids(job).values()))).kill()
    wait_until(lambda: sum("could not begin" in line for line in job.log) >= 2, "two restarts were refused")
    assert job.status == "restarting"
    attempts.unlink()
    (tmp_path / "attempts").rename(attempts)
    before = completed_checkpoints(job)
    wait_until(lambda: completed_checkpoints(job) > before, "a checkpoint completed after the storage came back")
    job.cancel()
    assert any("restoring checkpoint" in line for line in job.log), job.log


def test_slots_that_come_back_late_are_waited_for_and_cost_no_attempt(tmp_path: Path, spark: SparkSession) -> None:
    slots = 62

    def occupy() -> None:
        spark.sparkContext.setJobGroup("occupied", "", interruptOnCancel=True)
        with pytest.raises(Exception, match=r"(?i)cancel"):
            spark.range(0, slots, 1, slots).selectExpr("reflect('java.lang.Thread', 'sleep', 300000L)").collect()

    tracker = spark.sparkContext.statusTracker()
    thread = threading.Thread(target=occupy)
    thread.start()
    try:
        wait_until(
            lambda: sum(tracker.getStageInfo(s).numActiveTasks for s in tracker.getActiveStageIds()) >= slots,
            "the slots are taken",
        )
        env = environment(tmp_path)
        count_by_key(env, tmp_path, 1000, rate=1000)
        job = env.start("late-slots")
        wait_until(lambda: job.status == "waiting", "the job waits")
        assert "of 4 slots" in job.detail
    finally:
        spark.sparkContext.cancelJobGroup("occupied")
        thread.join()
    result = job.wait("200s")
    assert (result.status, result.attempts) == ("finished", 1), job.log


def limit_files_of(pids: list[int], size: int) -> None:
    """What these processes write beyond ``size`` bytes of a file fails, as on a full disk."""
    for pid in pids:
        psutil.Process(pid).rlimit(psutil.RLIMIT_FSIZE, (size, psutil.RLIM_INFINITY))


def discarding_job(folder: Path, tolerable: int) -> cw.Environment:
    """Nothing but checkpoints is written to disk."""
    env = environment(folder, tolerable_failures=tolerable)
    numbers = env.read(cw.sequence(None, rate=2000), uid="numbers").with_columns(k=pl.col("value") % 5000)
    numbers.key_by("k").agg(n=cw.count()).uid("counts").write(cw.discard(), uid="out")
    return env


def failed_checkpoints(job: cw.Job) -> list[Any]:
    return [each for each in job.checkpoints() if each.status == "failed"]


def test_checkpoints_that_cannot_be_stored_are_counted_and_the_job_goes_on_while_that_is_tolerated(
    tmp_path: Path,
) -> None:
    job = discarding_job(tmp_path, tolerable=1000).start("full-disk")
    wait_until(lambda: completed_checkpoints(job) >= 1, "a checkpoint completed")
    pids = list(worker_pids(job).values())
    limit_files_of(pids, 100)
    wait_until(lambda: len(failed_checkpoints(job)) >= 2, "two checkpoints failed")
    assert "too large" in failed_checkpoints(job)[0].failure_reason
    assert job.status == "running"
    limit_files_of(pids, psutil.RLIM_INFINITY)
    completed = completed_checkpoints(job)
    wait_until(lambda: completed_checkpoints(job) > completed, "a checkpoint completed with room on the disk again")
    assert list(worker_pids(job).values()) == pids, "the job was restarted"
    job.cancel()


def test_more_failed_checkpoints_in_a_row_than_tolerated_fail_the_job(tmp_path: Path) -> None:
    job = discarding_job(tmp_path, tolerable=1).start("full-disk-fails")
    wait_until(lambda: completed_checkpoints(job) >= 1, "a checkpoint completed")
    limit_files_of(list(worker_pids(job).values()), 100)
    with pytest.raises(cw.JobFailed) as failed:
        job.wait("200s")
    assert "tolerable_failures" in str(failed.value), failed.value
    assert len(failed_checkpoints(job)) == 2


def test_an_unreachable_storage_folder_fails_checkpoints_and_not_the_job(tmp_path: Path) -> None:
    """The driver's side: no id can be reserved while a file stands where the folder was."""
    job = discarding_job(tmp_path, tolerable=1000).start("no-folder")
    wait_until(lambda: completed_checkpoints(job) >= 1, "a checkpoint completed")
    ids = tmp_path / "checkpoints" / "no-folder" / "ids"
    away = ids.with_name("ids-away")
    ids.rename(away)
    ids.write_text("")
    told = "no checkpoint id could be reserved"
    wait_until(lambda: sum(told in line for line in job.log) >= 2, "two failures told")
    assert job.status == "running"
    ids.unlink()
    away.rename(ids)
    completed = completed_checkpoints(job)
    wait_until(lambda: completed_checkpoints(job) > completed, "a checkpoint completed again")
    job.cancel()
