"""What is told at the start of a job (rules 33 and 44)."""

from datetime import timedelta

import pytest

import cutwater as cw
from cutwater.notices import start_notices
from tests.own_sink import OwnSink

MINUTE = timedelta(minutes=1)


def checkpointing(timeout: str = "10 min", storage: str = "file:checkpoints") -> cw.Checkpointing:
    return cw.Checkpointing("1s", storage=storage, timeout=timeout)


def test_memory_storage_says_that_the_state_dies_with_the_driver() -> None:
    (told,) = start_notices({}, {}, checkpointing(storage="memory"), MINUTE)
    assert "if the driver dies" in told
    assert start_notices({}, {}, checkpointing(), MINUTE) == ()
    assert start_notices({}, {}, None, MINUTE) == ()


@pytest.mark.parametrize(
    ("mode", "accepted", "warned"),
    [
        ("at_least_once", False, True),
        ("at_least_once", True, False),
        ("exactly_once", True, False),
        ("at_most_once", False, False),
    ],
)
def test_a_source_that_cannot_be_read_again_is_told_where_at_least_once_is_asked_for(
    mode: str, accepted: bool, warned: bool
) -> None:
    env = cw.Environment(checkpointing=cw.Checkpointing("1s", storage="file:checkpoints", mode=mode))
    env.read(cw.socket("localhost", 9999, allow_data_loss=accepted), uid="lines").write(cw.discard())
    env.read(cw.sequence(1), uid="numbers").write(cw.discard())
    told = env.define("job", 1).notices
    assert bool(told) is warned
    if warned:
        (notice,) = told
        assert notice == (
            "mode='at_least_once': socket(localhost:9999) (uid 'lines') cannot be read again, so what it sent since the last "
            "checkpoint is lost when the job fails. allow_data_loss=True says that this is meant."
        )


def test_a_transaction_that_dies_before_a_restart_could_commit_it_is_refused() -> None:
    with pytest.raises(cw.ConfigError, match=r"uid 'ledger'.*lives for 0:10:59.*may come 0:11:00 after.*Raise trans"):
        start_notices({}, {"ledger": OwnSink("659s")}, checkpointing(), MINUTE)


@pytest.mark.parametrize(("lives", "warned"), [("11 min", True), ("13 min", True), ("14 min", False), (None, False)])
def test_a_transaction_whose_life_is_nearly_used_up_is_warned_of(lives: str | None, warned: bool) -> None:
    told = start_notices({}, {"ledger": OwnSink(lives)}, checkpointing(), MINUTE)
    assert bool(told) is warned
    assert not warned or "more than 80% of its life" in told[0]


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ("nonsense", "='nonsense' is not a duration"),
        (5, "=5: a bare number has no unit. Write transaction_timeout='5s' or transaction_timeout='5ms'"),
        (-5, "=-5: .* Write for example transaction_timeout='500ms'"),
    ],
)
def test_a_transaction_timeout_that_is_no_duration_is_refused(wrong: object, says: str) -> None:
    with pytest.raises(cw.ConfigError, match=rf"transaction_timeout of OwnSink \(uid 'ledger'\){says}"):
        start_notices({}, {"ledger": OwnSink(wrong)}, checkpointing(), MINUTE)


def test_the_longest_delay_of_the_restart_strategy_counts() -> None:
    env = cw.Environment(checkpointing=checkpointing(), restart=cw.exponential_delay(max="30 min"))
    env.read(cw.sequence(1), uid="numbers").write(OwnSink("20 min"), uid="ledger")
    with pytest.raises(cw.ConfigError, match="0:31:00 for a restart"):
        env.define("job", 1)
