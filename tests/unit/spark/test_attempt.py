"""What an attempt asks of its Spark session, as far as it does not take Spark to see it."""

from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import cast

from pyspark.sql import SparkSession

import cutwater as cw
from cutwater.checkpoint.file_storage import FileStorage
from cutwater.checkpoint.job_store import JobStore
from cutwater.checkpoint.statistics import CheckpointHistory
from cutwater.job.attempt import AttemptEvents
from cutwater.job.deployment import deploy_fresh
from cutwater.spark.attempt import Canceled, SparkAttempt


@dataclass
class Context:
    """Of a session that runs no job: every submit fails, once its group is set."""

    master: str = "local[4]"
    submitted: set[str] = field(default_factory=set)
    canceled: set[str] = field(default_factory=set)

    def getConf(self) -> dict[str, str]:
        return {}

    def setJobGroup(self, group: str, description: str) -> None:
        self.submitted.add(group)

    def cancelJobGroup(self, group: str) -> None:
        self.canceled.add(group)


def canceled_attempt(storage: Path) -> Context:
    """The next attempt of the job ``words`` that has its checkpoints in ``storage``."""
    env = cw.Environment(parallelism=1, checkpointing=cw.Checkpointing("1h", storage=f"file:{storage}"))
    env.read(cw.sequence(10), uid="numbers").write(cw.discard(), uid="nowhere")
    definition = env.define("words", 1)
    store = JobStore(FileStorage(str(storage)), "words")
    record = store.acquire_attempt()
    context = Context()
    events = cast(AttemptEvents, SimpleNamespace(log=lambda line: None))
    attempt = SparkAttempt(
        cast(SparkSession, SimpleNamespace(sparkContext=context)), definition, store, record.attempt, record.incarnation,
        CheckpointHistory(), deploy_fresh(definition), events,
    )  # fmt: skip
    attempt.cancel()
    assert attempt.run() == Canceled()
    return context


def test_an_attempt_cancels_what_it_submitted_and_nothing_of_another_job_of_its_name(tmp_path: Path) -> None:
    """Both are the first attempt of a job called ``words``, on one session: only their incarnations differ."""
    mine, other = canceled_attempt(tmp_path / "mine"), canceled_attempt(tmp_path / "other")
    assert mine.submitted == mine.canceled
    assert other.submitted == other.canceled
    assert len(mine.canceled | other.canceled) == 2


def test_an_attempt_cancels_nothing_of_the_one_before(tmp_path: Path) -> None:
    first, second = canceled_attempt(tmp_path), canceled_attempt(tmp_path)
    assert len(first.canceled | second.canceled) == 2
