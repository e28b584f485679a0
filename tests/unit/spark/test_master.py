"""What is read off a master's URL."""

import socket

import pytest

from cutwater.errors import ConfigError
from cutwater.spark.master import FORMS, Tasks, checked_master, refuse_silent, repeats_tasks, tasks_of


@pytest.mark.parametrize(
    ("master", "tasks"),
    [
        ("local", Tasks.IN_THE_DRIVER),
        ("local[4]", Tasks.IN_THE_DRIVER),
        ("local[*]", Tasks.IN_THE_DRIVER),
        ("local[4, 1]", Tasks.IN_THE_DRIVER),
        ("local-cluster[2,1,1024]", Tasks.ON_THIS_MACHINE),
        ("local-cluster[2, 1, 1024]", Tasks.ON_THIS_MACHINE),
        ("spark://one:7077", Tasks.ON_A_CLUSTER),
        ("spark://one:7077,two:7077", Tasks.ON_A_CLUSTER),
        ("spark://[::1]:7077", Tasks.ON_A_CLUSTER),
        ("yarn", Tasks.ON_A_CLUSTER),
        ("k8s://https://host:443", Tasks.ON_A_CLUSTER),
    ],
)
def test_a_master_that_spark_can_read_says_where_its_tasks_run(master: str, tasks: Tasks) -> None:
    assert checked_master(master) == master
    assert tasks_of(master) is tasks


@pytest.mark.parametrize(
    "master",
    ["", "nonsense", "localhost", "local[]", "local[0]", "local[two]", "local-cluster[2]", "spark://", "spark://one", "k8s://", 7],
)  # fmt: skip
def test_a_master_that_spark_cannot_read_is_named_with_what_is_allowed(master: object) -> None:
    with pytest.raises(ConfigError) as refused:
        checked_master(master)
    assert f"master={master!r}" in str(refused.value)
    assert FORMS in str(refused.value)


@pytest.mark.parametrize(
    ("master", "repeats"),
    [("local", False), ("local[4]", False), ("local[4,1]", False), ("local[*, 3]", True), ("yarn", False)],
)
def test_a_local_master_may_ask_for_more_than_one_try(master: str, *, repeats: bool) -> None:
    assert repeats_tasks(master) is repeats


def test_a_standalone_master_must_answer_at_one_of_its_addresses() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        there = f"127.0.0.1:{listening.getsockname()[1]}"
        refuse_silent(f"spark://{there}")
        refuse_silent(f"spark://no-such-host.invalid:7077,{there}")
    with pytest.raises(ConfigError, match="nobody listens there") as refused:
        refuse_silent(f"spark://{there}")
    assert there in str(refused.value)


@pytest.mark.parametrize(
    "master", ["local[2]", "local-cluster[2,1,1024]", "yarn", "k8s://https://no-such-host.invalid"]
)
def test_other_masters_are_left_to_spark(master: str) -> None:
    refuse_silent(master)
