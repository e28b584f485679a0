"""The session that Cutwater starts itself, in a process of its own, as there is one session in a process."""

import json
import subprocess
import sys

import pytest

pytestmark = pytest.mark.timeout(540)

PROGRAM = """
import json
import threading
import time

import psutil

import cutwater as cw
from cutwater.checkpoint.job_store import JobStore
from cutwater.spark import session

# So few that a small job shows what a large one meets: seventy workers take a minute to start.
session.DEFAULT_SLOTS = 6

told = {}


def pipeline(width):
    env = cw.Environment(parallelism=width)
    env.read(cw.sequence(5), uid="numbers").rebalance().map(lambda r: r, "value long").uid("same").collect("out")
    return env


def refusal(act):
    try:
        act()
    except cw.ConfigError as error:
        return str(error)


env = pipeline(2)
env.enable_checkpointing("1s", storage="hdfs://host/checkpoints")
told["hdfs"] = refusal(lambda: env.execute("far"))
from pyspark import SparkContext

told["jvm"] = SparkContext._gateway is not None

answers, lock = threading.Event(), JobStore.lock


def lock_of_a_silent_storage(store):
    asked.set()
    answers.wait()
    return lock(store)


asked, hung = threading.Event(), []
JobStore.lock = lock_of_a_silent_storage
waiting = threading.Thread(target=lambda: hung.append(pipeline(1).start("hung")))
waiting.start()
asked.wait()
JobStore.lock = lock
told["beside a silent storage"] = len(pipeline(2).execute("small").rows("out"))
told["needed by a start"] = refusal(lambda: pipeline(4).start("large"))
answers.set()
waiting.join()
told["hung"] = len(hung[0].wait().rows("out"))

told["small"] = len(pipeline(2).execute("small again").rows("out"))
endless = cw.Environment(parallelism=1)
endless.read(cw.sequence(10**12, rate=10), uid="numbers").write(cw.discard(), uid="nowhere")
job = endless.start("endless")
told["busy"] = refusal(lambda: pipeline(4).start("large"))
job.cancel()
job.wait()
told["large"] = len(pipeline(4).execute("large").rows("out"))

spark = cw.Environment().spark
told["slots"] = spark.sparkContext.defaultParallelism
stream = spark.readStream.format("rate").load()
told["stream"] = refusal(lambda: cw.Environment().read(stream))
told["stream table"] = refusal(lambda: cw.spark_table(stream))
told["lent"] = refusal(lambda: pipeline(6).start("larger"))
told["alive"] = spark.range(3).count()
orphan = cw.Environment(parallelism=1)
orphan.read(cw.sequence(10**12, rate=10), uid="numbers").write(cw.discard(), uid="nowhere")
job = orphan.start("orphan")
while not job.workers:
    time.sleep(0.1)
spark.stop()
try:
    job.wait("60s")
except cw.JobFailed as failure:
    told["stopped"] = str(failure)

told["after the stop"] = len(pipeline(2).execute("after the stop").rows("out"))
(java,) = [child for child in psutil.Process().children() if "java" in child.name()]
java.kill()
java.wait()
told["dead"] = refusal(lambda: pipeline(2).start("without java"))
print(json.dumps(told))
"""


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        capture_output=True, text=True, timeout=480, cwd=tmp_path_factory.mktemp("own"), check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr[-3000:]
    answers: dict[str, object] = json.loads(ran.stdout.splitlines()[-1])
    return answers


def test_a_storage_that_is_not_there_yet_is_refused_before_a_jvm_starts(told: dict[str, object]) -> None:
    assert "hdfs:// is not supported yet" in str(told["hdfs"])
    assert told["jvm"] is False


def test_a_job_that_needs_more_slots_than_our_own_idle_session_has_gets_a_larger_one(told: dict[str, object]) -> None:
    assert told["small"] == told["large"] == 5
    assert told["slots"] == 8


def test_a_start_that_waits_for_its_storage_keeps_no_other_from_starting(told: dict[str, object]) -> None:
    assert told["beside a silent storage"] == told["hung"] == 5
    assert "the job 'hung' still runs on it" in str(told["needed by a start"])


def test_a_session_that_a_job_runs_on_stays_and_the_larger_job_is_told_so(told: dict[str, object]) -> None:
    assert "This job needs 8 slots at the same time, and the session (master local[6]) has 6, " in str(told["busy"])
    assert "No larger session was started: the job 'endless' still runs on it: wait for its end." in str(told["busy"])


def test_a_session_that_was_given_out_stays(told: dict[str, object]) -> None:
    assert "No larger session was started: env.spark gave it out" in str(told["lent"])
    assert told["alive"] == 3


def test_a_job_whose_session_was_stopped_says_so_and_restarts_nothing(told: dict[str, object]) -> None:
    first, second, third = str(told["stopped"]).splitlines()[:3]
    assert first == "The Spark session was stopped, or its Java process ended, while the job ran on it."
    assert second == "No restart: start the job again, on a new session."
    assert third.startswith("Its attempt saw: ")
    assert told["after the stop"] == 5


def test_without_its_java_process_a_program_is_told_to_start_anew(told: dict[str, object]) -> None:
    assert "The Java process of this program's Spark session has ended" in str(told["dead"])
    assert "in a new Python process" in str(told["dead"])


def test_a_streaming_dataframe_is_refused_with_the_way_out(told: dict[str, object]) -> None:
    assert str(told["stream"]) == str(told["stream table"])
    assert "a streaming DataFrame has no end" in str(told["stream"])
    assert "cw.parquet_files(path, watch=True)" in str(told["stream"])
