"""What is advised to a session that is too small."""

import pytest

from cutwater.spark.slots import crowding, too_few


@pytest.mark.parametrize("master", ["local", "local[2]", "local[*]"])
def test_a_local_session_is_told_the_master_that_would_do(master: str) -> None:
    told = too_few(master, total=2, free=1, needed=4, kept_because=None)
    assert f"needs 4 slots at the same time, and the session (master {master}) has 2, 1 of them free" in told
    assert "cw.spark_conf(slots=4)" in told
    assert "executors" not in told


@pytest.mark.parametrize("master", ["local-cluster[1,1,1024]", "spark://one:7077", "yarn"])
def test_a_cluster_is_told_the_cores_that_would_do(master: str) -> None:
    told = too_few(master, total=1, free=1, needed=4, kept_because="a job runs on it")
    assert "executors with at least 4 cores in all" in told
    assert "slots=" not in told
    assert told.endswith("No larger session was started: a job runs on it.")


def test_far_more_workers_than_cores_are_told_about() -> None:
    assert crowding(workers=32, cores=2) is None
    told = crowding(workers=401, cores=2)
    assert told is not None
    assert "401 Python workers share 2 cores" in told
