"""Exactly once from unaligned checkpoints of a jammed job: through failures of every kind, and at another parallelism."""

from pathlib import Path

import pytest

from tests.spark.jammed import cancel_with_rows_in_flight, go_through_every_failure, judge, start

RECORDS = 12_000

pytestmark = pytest.mark.timeout(400)


@pytest.mark.parametrize(("path", "aligned_timeout"), [((1, 2), None), ((2,), "100ms")], ids=str)
def test_a_jammed_job_goes_through_failures_of_every_kind_and_gives_everything_once(
    tmp_path: Path, path: tuple[int, ...], aligned_timeout: str | None
) -> None:
    """All topologies, both modes and other parallelisms: ``make soak``."""
    go_through_every_failure(tmp_path, "broadcast", path, RECORDS, aligned_timeout)


def test_a_jammed_job_goes_on_at_another_parallelism_with_the_rows_that_were_in_flight(tmp_path: Path) -> None:
    """3 to 5, and back to 3, each time from a checkpoint that overtook rows."""
    for parallelism in (3, 5):
        job = start(tmp_path, "broadcast", parallelism, RECORDS)
        cancel_with_rows_in_flight(job, tmp_path)
    job = start(tmp_path, "broadcast", 3, RECORDS)
    assert job.wait("200s").status == "finished"
    judge(tmp_path, "broadcast", RECORDS, began_with=3)
