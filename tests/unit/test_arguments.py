import inspect
import pickle
from typing import Any

import pytest

import cutwater as cw
from cutwater.arguments import takes_no_others

SETTINGS = [cw.Checkpointing, cw.Environment, cw.Memory, cw.RocksDB, cw.SideOutput]
FUNCTIONS = [value for name in cw.__all__ if inspect.isfunction(value := getattr(cw, name))]


@pytest.mark.parametrize("call", [*SETTINGS, *FUNCTIONS], ids=lambda call: call.__name__)
def test_an_argument_that_is_not_taken_is_named_beside_those_that_are(call: Any) -> None:
    with pytest.raises(cw.ConfigError, match="no_such_argument"):
        call(no_such_argument=1)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: cw.RocksDB(chache="1MB"),
            r"RocksDB: no argument 'chache' \(did you mean 'cache'\?\); write cw\.RocksDB\(\*, .*cache='64MB'",
        ),  # type: ignore[call-arg]
        (lambda: cw.RocksDB("64MB"), r"too many positional arguments; write cw\.RocksDB\(\*"),  # type: ignore[misc]
        (cw.sum, r"missing a required argument: 'column'; write cw\.sum\(column\)\."),
        (lambda: cw.Environment(paralelism=2), r"checkpointing=\.\.\., state_backend=None"),  # type: ignore[call-arg]
        (lambda: cw.AggregatingState("long"), r"write cw\.AggregatingState\(type, create, add, result=\.\.\."),  # type: ignore[call-arg]
    ],
)
def test_the_message_shows_what_to_write(call: Any, message: str) -> None:
    with pytest.raises(cw.ConfigError, match=message):
        call()


def test_what_goes_wrong_inside_is_not_taken_for_a_wrong_argument() -> None:
    @takes_no_others
    def fails(n: int) -> None:
        raise TypeError(f"inside, with {n}")

    with pytest.raises(TypeError, match="inside, with 1"):
        fails(1)


def test_settings_travel_to_the_workers_as_before() -> None:
    for setting in (cw.Memory(incremental=True), cw.RocksDB(cache="1MB")):
        assert pickle.loads(pickle.dumps(setting)) == setting  # noqa: S301  # as Spark ships closures; nothing is stored
