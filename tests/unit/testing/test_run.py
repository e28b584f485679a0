"""``cw.testing.run`` as a user would use it; the documentation's example runs as it stands there."""

import random
import re
from pathlib import Path
from typing import Any

import pytest

import cutwater as cw
from cutwater.checkpoint import job_store
from cutwater.testing import ADVANCE, CHECKPOINT, FAIL, TRIGGER, run, script

DOCS = Path(__file__).parents[3] / "docs" / "testing.md"


class Numbered(cw.KeyedProcess):
    seen = cw.ValueState("long")

    def process(self, row: Any, ctx: Any) -> Any:
        self.seen.value = (self.seen.value or 0) + 1
        yield row.word, self.seen.value


class Reminder(cw.KeyedProcess):
    """Says a word again five seconds after it came."""

    def process(self, row: Any, ctx: Any) -> Any:
        ctx.timers.processing_time(ctx.now + 5000)
        return ()

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        yield (ctx.key,)


def numbered(env: cw.Environment) -> None:
    words = env.read(cw.from_rows([], "word string"), uid="words")
    words.key_by("word").process(Numbered, "word string, n long").uid("numbered").collect("out")


def told(rows: list[Any]) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in rows]


def test_the_example_of_the_documentation_runs() -> None:
    example = re.search(r"```python\n(.*?)```", DOCS.read_text(), re.DOTALL)
    assert example is not None
    names: dict[str, Any] = {"__name__": "documentation"}
    exec(compile(example.group(1), str(DOCS), "exec"), names)
    tests = [name for name in names if name.startswith("test_")]
    assert len(tests) == 2
    for name in tests:
        names[name]()


def test_rows_may_be_tuples_dicts_or_bare_values() -> None:
    result = run(numbered, inputs={"words": [("a",), {"word": "a"}, "a"]})
    assert told(result["out"]) == [("a", 1), ("a", 2), ("a", 3)]


def test_what_came_behind_the_last_checkpoint_is_read_again_after_a_failure() -> None:
    words = script(["a", "a"], CHECKPOINT, "a", FAIL, "a", FAIL)
    assert told(run(numbered, inputs={"words": words})["out"]) == [("a", 1), ("a", 2), ("a", 3), ("a", 4)]


def test_a_failure_behind_a_checkpoint_that_cannot_be_restored_fails_the_job_as_on_spark(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def damaged(*_: object) -> None:
        raise cw.DamagedCheckpoint("a file is missing")

    monkeypatch.setattr(job_store, "verify", damaged)
    with pytest.raises(cw.JobFailed, match="No intact checkpoint to restore:\n  checkpoint 1: a file is missing"):
        run(numbered, inputs={"words": script("a", CHECKPOINT, "a", FAIL, "a")})


def test_a_failure_before_any_checkpoint_starts_over() -> None:
    assert told(run(numbered, inputs={"words": script("a", FAIL, "a")})["out"]) == [("a", 1), ("a", 2)]


def test_a_failure_behind_the_last_row_still_ends_right() -> None:
    assert told(run(numbered, inputs={"words": script("a", CHECKPOINT, FAIL)})["out"]) == [("a", 1)]


def test_the_clock_moves_only_when_the_script_says_so() -> None:
    def pipeline(env: cw.Environment) -> None:
        words = env.read(cw.from_rows([], "word string"), uid="words")
        words.key_by("word").process(Reminder, "word string").uid("reminder").collect("out")

    early = run(pipeline, inputs={"words": script("a", ADVANCE("4s"))})
    late = run(pipeline, inputs={"words": script("a", ADVANCE("4s"), CHECKPOINT, FAIL, ADVANCE("2s"))})
    assert told(early["out"]) == []
    assert told(late["out"]) == [("a",)]


class Met(cw.KeyedProcess):
    """Each record with the watermark that it met."""

    def process(self, row: Any, ctx: Any) -> Any:
        yield row.ts, ctx.watermark


@pytest.mark.parametrize(("passed", "met"), [("59s", None), ("1 min", 999), ("1h", 999)])
@pytest.mark.parametrize("seed", range(3))
def test_while_the_clock_moves_nothing_comes_and_sources_that_wait_are_idle_before_the_next_rows(
    passed: str, met: int | None, seed: int
) -> None:
    def pipeline(env: cw.Environment) -> None:
        left, right = (
            env.read(cw.from_rows([], "k string, ts long"), uid=uid).with_timestamps("ts", idle_after="1 min")
            for uid in ("left", "right")
        )
        left.union(right).key_by("k").process(Met, "ts long, watermark long").uid("met").collect("out")

    silent = script(*[ADVANCE("1ms")] * 20)
    inputs = {"left": script(("a", 1000), ADVANCE(passed), ("a", 2000)), "right": silent}
    found = run(pipeline, inputs=inputs, choose=random.Random(seed).randrange)["out"]
    assert told(found) == [(1000, None), (2000, met)]


def test_two_sources_may_have_a_script_each() -> None:
    def pipeline(env: cw.Environment) -> None:
        left = env.read(cw.from_rows([], "word string"), uid="left")
        right = env.read(cw.from_rows([], "word string"), uid="right")
        left.union(right).key_by("word").process(Numbered, "word string, n long").uid("numbered").collect("out")

    inputs = {"left": script("a", CHECKPOINT, "a", FAIL), "right": script("a", CHECKPOINT, "a")}
    assert sorted(told(run(pipeline, inputs=inputs)["out"])) == [("a", 1), ("a", 2), ("a", 3), ("a", 4)]


@pytest.mark.parametrize("seed", range(5))
def test_any_order_of_steps_and_any_parallelism_gives_the_same_result(seed: int) -> None:
    words = script([*"abcabc"], CHECKPOINT, [*"cba"], FAIL, [*"abc"])
    result = run(numbered, inputs={"words": words}, parallelism=1 + seed % 3, choose=random.Random(seed).randrange)
    assert sorted(told(result["out"])) == [(word, n) for word in "abc" for n in range(1, 5)]


class Counted(cw.KeyedProcess):
    seen = cw.ValueState("long")

    def process(self, row: Any, ctx: Any) -> Any:
        self.seen.value = (self.seen.value or 0) + row.n
        yield row.word, self.seen.value


@pytest.mark.parametrize("parallelism", [1, 2, 3])
@pytest.mark.parametrize(
    "before", [cw.Stream.broadcast, cw.Stream.rebalance, lambda s: s.broadcast().union(s.rebalance().filter("false"))]
)
@pytest.mark.parametrize(
    "behind",
    [
        lambda keyed: keyed.agg(n=cw.sum("n")),
        lambda keyed: keyed.reduce(lambda one, other: (one.word, one.n + other.n)),
        lambda keyed: keyed.process(Counted, "word string, n long"),
    ],
)
def test_key_by_takes_the_place_of_how_records_were_to_travel_before(
    before: Any, behind: Any, parallelism: int
) -> None:
    def pipeline(env: cw.Environment) -> None:
        words = env.read(cw.from_rows([], "word string, n long"), uid="words")
        behind(before(words).key_by("word")).uid("counts").collect("out")

    words = script([("a", 1), ("b", 2)], CHECKPOINT, [("a", 3)], FAIL, [("b", 4)])
    result = run(pipeline, {"words": words}, parallelism=parallelism)
    assert dict(told(result["out"])) == {"a": 4, "b": 6}


def test_a_source_that_is_not_named_reads_its_own_rows() -> None:
    def pipeline(env: cw.Environment) -> None:
        env.read(cw.from_rows([("own",)], "word string"), uid="words").collect("out")

    assert told(run(pipeline, inputs={})["out"]) == [("own",)]


def test_every_sink_is_a_list_under_its_uid_and_its_folder_is_not_made(tmp_path: Path) -> None:
    def pipeline(env: cw.Environment) -> None:
        words = env.read(cw.from_rows([], "word string"), uid="words")
        words.write(cw.parquet_sink(tmp_path / "nowhere" / "that" / "exists"), uid="files")
        words.filter("word = 'a'").collect("only-a")

    result = run(pipeline, inputs={"words": ["a", "b"]})
    assert {uid: told(rows) for uid, rows in result.items()} == {"files": [("a",), ("b",)], "only-a": [("a",)]}
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_uid_is_refused_with_those_that_exist() -> None:
    with pytest.raises(cw.ConfigError, match=r"\['wrods'\].*\['words'\]"):
        run(numbered, inputs={"wrods": ["a"]})


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"pipeline": None}, "pipeline=None: a function is needed that takes one argument, a cw.Environment."),
        ({"pipeline": int}, "pipeline=<class 'int'>: a function is needed"),
        ({"pipeline": lambda: None}, "pipeline=<function <lambda>"),
        ({"pipeline": lambda env, more: None}, "a function is needed that takes one argument"),
        ({"inputs": None}, "inputs=None: a dict is needed, from the uid of a source to its rows or a script(...)."),
        ({"inputs": ["a"]}, "inputs=['a']: a dict is needed"),
        ({"inputs": {1: ["a"], "b": ["a"]}}, "inputs name [1, 'b'], but the pipeline's sources are ['words']."),
        ({"inputs": {"words": 5}}, "inputs['words']=5: a list of rows or a script(...) is needed."),
        ({"inputs": {"words": None}}, "inputs['words']=None: a list of rows"),
        ({"inputs": {"words": "abc"}}, "inputs['words']='abc': a list of rows"),
        ({"inputs": {"words": {"word": "a"}}}, "inputs['words']={'word': 'a'}: a list of rows"),
        ({"parallelism": None}, "parallelism=None: a whole number of at least 1 is needed."),
        ({"parallelism": 0}, "parallelism=0: a whole number"),
        ({"environment": 0}, "environment=0: pass cw.Environment(...) or None."),
        ({"environment": ""}, "environment='': pass cw.Environment(...)"),
        ({"environment": []}, "environment=[]: pass cw.Environment(...)"),
        ({"environment": cw.Environment}, "environment=<class 'cutwater.environment.Environment'>: pass cw.Env"),
        ({"choose": None}, "choose=None: a function is needed that takes the number of steps"),
    ],
)
def test_a_wrong_argument_is_refused_by_name(arguments: dict[str, Any], told: str) -> None:
    with pytest.raises(cw.ConfigError) as refused:
        run(**{"pipeline": numbered, "inputs": {"words": ["a"]}, **arguments})
    assert told in str(refused.value)


def test_a_type_error_of_the_pipeline_is_its_own() -> None:
    def pipeline(env: cw.Environment) -> None:
        len(5)  # type: ignore[arg-type]

    with pytest.raises(TypeError, match="has no len"):
        run(pipeline, inputs={})


def test_rows_may_come_from_any_iterable() -> None:
    assert told(run(numbered, inputs={"words": (word for word in "ab")})["out"]) == [("a", 1), ("b", 1)]


def test_a_row_that_does_not_fit_names_the_source_and_the_value() -> None:
    with pytest.raises(cw.CutwaterError, match=r"words.*\b7\b"):
        run(numbered, inputs={"words": [(7,)]})


def test_user_code_that_fails_says_where() -> None:
    def broken(row: Any) -> Any:
        raise ValueError("no such user")

    def pipeline(env: cw.Environment) -> None:
        env.read(cw.from_rows([], "word string"), uid="words").map(broken, "word string").uid("lookup").collect("out")

    with pytest.raises(cw.JobFailed) as failed:
        run(pipeline, inputs={"words": ["a", "b"]}, parallelism=2)
    line = broken.__code__.co_firstlineno + 1
    said = f"lookup[0]: map 'map' (lookup): ValueError: no such user at test_run.py:{line}, for the row"
    assert str(failed.value).startswith(said)
    assert "Traceback" not in str(failed.value)


def test_a_function_that_cannot_be_opened_says_where() -> None:
    class Unready(cw.Process):
        def open(self, ctx: Any) -> None:
            raise OSError("no such host")

        def process(self, row: Any, ctx: Any) -> Any: ...

    def pipeline(env: cw.Environment) -> None:
        words = env.read(cw.from_rows([], "word string"), uid="words")
        words.process(Unready, "word string").uid("lookup").collect("out")

    with pytest.raises(cw.JobFailed, match=r"^lookup\[0\].*OSError: no such host"):
        run(pipeline, inputs={"words": ["a"]})


def test_a_collected_list_and_a_sink_of_the_same_name_both_come_back() -> None:
    def pipeline(env: cw.Environment) -> None:
        words = env.read(cw.from_rows([], "word string"), uid="words")
        words.write(cw.discard(), uid="x")
        words.filter("word = 'a'").collect("x")

    result = run(pipeline, inputs={"words": ["a", "b"]})
    assert {name: told(rows) for name, rows in result.items()} == {"x": [("a",), ("b",)], "collect-x": [("a",)]}


def test_rows_behind_a_trigger_are_read_while_the_checkpoint_is_under_way() -> None:
    words = script("a", TRIGGER, "a", FAIL, "a")
    for seed in range(5):
        result = run(numbered, inputs={"words": words}, choose=random.Random(seed).randrange)
        assert told(result["out"]) == [("a", 1), ("a", 2), ("a", 3)]


def test_a_script_says_what_is_wrong_with_its_duration() -> None:
    with pytest.raises(cw.ConfigError, match="5"):
        ADVANCE(5)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "environment",
    [
        lambda: cw.Environment(parallelism=2, state_backend=cw.Memory(asynchronous=False)),
        lambda: cw.Environment(
            parallelism=2, checkpointing=cw.Checkpointing("1 day", storage="memory", stop_the_world=True)
        ),
    ],
    ids=["synchronous snapshots", "stop the world"],
)
def test_the_ways_to_compare_with_give_the_same_result(environment: Any) -> None:
    scripted = script([("a",), ("b",)], CHECKPOINT, [("a",)], FAIL, [("b",)])
    rows = run(numbered, {"words": scripted}, environment=environment())
    assert sorted(told(rows["out"])) == [("a", 1), ("a", 2), ("b", 1), ("b", 2)]


CLOSED: list[str] = []


class Closing(cw.Process):
    """Breaks at a word, and at close if it is told to."""

    def __init__(self, breaks_at: str | None = None, *, closes: bool = True) -> None:
        self.breaks_at, self.closes = breaks_at, closes

    def process(self, row: Any, ctx: Any) -> Any:
        if row.word == self.breaks_at:
            raise ValueError(f"no {row.word}")
        return [row]

    def close(self) -> None:
        CLOSED.append("closed")
        if not self.closes:
            raise OSError("cannot be closed")


def passing(function: cw.Process) -> Any:
    def pipeline(env: cw.Environment) -> None:
        words = env.read(cw.from_rows([], "word string"), uid="words")
        words.process(function, "word string").uid("passing").collect("out")

    return pipeline


def test_functions_are_closed_once_at_the_end_and_not_by_a_failure_of_every_process() -> None:
    CLOSED.clear()
    run(passing(Closing()), inputs={"words": script(["a"], CHECKPOINT, ["b"], FAIL)})
    assert CLOSED == ["closed"]


def test_functions_are_closed_when_the_pipeline_fails() -> None:
    CLOSED.clear()
    with pytest.raises(cw.JobFailed, match="no b") as failure:
        run(passing(Closing("b", closes=False)), inputs={"words": ["a", "b"]})
    assert CLOSED == ["closed"]
    assert "passing[0]" in str(failure.value).splitlines()[0]
    assert "Closing failed too: OSError: cannot be closed" in str(failure.value)


def test_a_close_that_fails_fails_the_run() -> None:
    with pytest.raises(cw.JobFailed, match=r"passing\[0\] \(test_run.py:\d+\): OSError: cannot be closed"):
        run(passing(Closing(closes=False)), inputs={"words": ["a"]})


def test_a_source_without_end_must_be_replaced() -> None:
    def pipeline(env: cw.Environment) -> None:
        env.read(cw.sequence(None), uid="numbers").collect("out")

    with pytest.raises(cw.ConfigError, match="source 'numbers' never ends, so the run would not either: name it"):
        run(pipeline, inputs={})
    assert told(run(pipeline, inputs={"numbers": [1, 2]})["out"]) == [(1,), (2,)]
