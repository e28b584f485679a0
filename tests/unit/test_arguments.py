import inspect
import pickle
from typing import Any

import pytest

import cutwater as cw
from cutwater.arguments import takes_no_others

SETTINGS = [cw.Checkpointing, cw.Environment, cw.Memory, cw.RocksDB, cw.SideOutput]
FUNCTIONS = [value for name in cw.__all__ if inspect.isfunction(value := getattr(cw, name))]
TESTING = [cw.testing.run, cw.testing.ADVANCE, cw.testing.script, cw.testing.check_state_backend]
METHODS = [
    (of, name)
    for of in (
        *(cw.Environment, cw.Stream, cw.KeyedStream, cw.WindowedStream, cw.ConnectedStreams),
        *(cw.Job, cw.JobResult),
    )
    for name, method in vars(of).items()
    if inspect.isfunction(method) and not name.startswith("_")
    and not any(each.kind is each.VAR_KEYWORD for each in inspect.signature(method).parameters.values())
]  # fmt: skip


@pytest.mark.parametrize("call", [*SETTINGS, *FUNCTIONS, *TESTING], ids=lambda call: call.__name__)
def test_an_argument_that_is_not_taken_is_named_beside_those_that_are(call: Any) -> None:
    with pytest.raises(cw.ConfigError, match="no_such_argument"):
        call(no_such_argument=1)


@pytest.mark.parametrize(("of", "name"), METHODS, ids=lambda each: getattr(each, "__name__", each))
def test_an_argument_that_a_method_does_not_take_is_named_beside_those_that_it_does(of: Any, name: str) -> None:
    # Before anything of the object is looked at: one that nobody made will do.
    with pytest.raises(cw.ConfigError, match=rf"^{name}: no argument 'no_such_argument'; write \.{name}\((?!self)"):
        getattr(of.__new__(of), name)(no_such_argument=1)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: cw.RocksDB(chache="1MB"),  # type: ignore[call-arg]
            r"RocksDB: no argument 'chache' \(did you mean 'cache'\?\); write cw\.RocksDB\(\*, .*cache='64MB'",
        ),
        (lambda: cw.RocksDB("64MB"), r"too many positional arguments; write cw\.RocksDB\(\*"),  # type: ignore[call-arg, arg-type]
        (cw.sum, r"missing a required argument: 'column'; write cw\.sum\(column\)\."),
        (lambda: cw.Environment(paralelism=2), r"checkpointing=\.\.\., state_backend=None"),  # type: ignore[call-arg]
        (
            lambda: _keyed().window(cw.tumbling("5s"), lateness="1s"),  # type: ignore[call-arg]
            r"window: no argument 'lateness' \(did you mean 'allowed_lateness'\?\); write \.window\(windows, time='event'",
        ),
        (lambda: _keyed().agg(cw.count()), r"agg: too many positional arguments; write \.agg\(\*\*aggregates\)"),  # type: ignore[call-arg]
        (lambda: cw.testing.run(lambda env: None), r"missing .* 'inputs'; write cw\.testing\.run\(pipeline, inputs, "),  # type: ignore[call-arg]
        (lambda: cw.AggregatingState("long"), r"write cw\.AggregatingState\(type, create, add, result=\.\.\."),  # type: ignore[call-arg]
    ],
)
def test_the_message_shows_what_to_write(call: Any, message: str) -> None:
    with pytest.raises(cw.ConfigError, match=message):
        call()


def _keyed() -> cw.KeyedStream:
    return cw.Environment(checkpointing=None).read(cw.from_rows([], "k long")).key_by("k")


def test_what_goes_wrong_inside_is_not_taken_for_a_wrong_argument() -> None:
    @takes_no_others
    def fails(n: int) -> None:
        raise TypeError(f"inside, with {n}")

    with pytest.raises(TypeError, match="inside, with 1"):
        fails(1)


def test_settings_travel_to_the_workers_as_before() -> None:
    for setting in (cw.Memory(incremental=True), cw.RocksDB(cache="1MB")):
        assert pickle.loads(pickle.dumps(setting)) == setting  # noqa: S301  # as Spark ships closures; nothing is stored
