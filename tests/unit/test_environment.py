"""What users write wrongly is refused at the call, in a sentence that names it and says what is allowed."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import cutwater as cw
from cutwater.flow.ids import Attempt


class HalfAStrategy:
    """Says whether to restart, but not how long that may take."""

    def next_restart(self, history: Any, now: float, random: Any) -> None: ...


def stream(env: cw.Environment | None = None) -> cw.Stream:
    return (env or cw.Environment()).read(cw.from_rows([(1, "a")], "n long, word string"), uid="rows")


class Counting(cw.KeyedProcess):
    seen = cw.ValueState("long")


class HalfABackend:
    """An own backend that is not finished."""

    def open(self, uid: str, key_groups: Any, max_parallelism: int) -> Any: ...


class Untold(cw.Source):
    """Its author forgot to say what its records look like."""

    def splits(self) -> list[int]:
        return [0]

    def open(self, split: Any, position: Any, ctx: Any) -> Any:
        raise AssertionError("never read")


class Two:
    def each(self, row: Any, other: Any) -> Any: ...


class Own(cw.AggregateFunction): ...


class ForgetsContext(cw.KeyedProcess):
    def process(self, row: Any) -> Any: ...  # type: ignore[override]


class ForgetsTime(cw.KeyedProcess):
    def process(self, row: Any, ctx: Any) -> Any: ...

    def on_timer(self, ctx: Any) -> Any: ...  # type: ignore[override]


class ForgetsSide(cw.CoProcess):
    def process_left(self, row: Any, ctx: Any) -> Any: ...

    def process_right(self, row: Any) -> Any: ...  # type: ignore[override]


class OpensAlone(cw.Process):
    def open(self) -> None: ...  # type: ignore[override]

    def process(self, row: Any, ctx: Any) -> Any: ...


class AddsNothing(cw.AggregateFunction):
    accumulator_type = result_type = "long"

    def create(self) -> Any: ...

    def add(self, accumulator: Any) -> Any: ...  # type: ignore[override]

    def merge(self, a: Any, b: Any) -> Any: ...

    def result(self, accumulator: Any) -> Any: ...


class NeedsArguments(cw.Process):
    def __init__(self, n: int) -> None: ...

    def process(self, row: Any, ctx: Any) -> Any: ...


class NoProcess(cw.KeyedProcess): ...


class WithState(cw.Process):
    seen = cw.ValueState("long")

    def process(self, row: Any, ctx: Any) -> Any: ...


def nested(s: cw.Stream) -> cw.Stream:
    return s.map(lambda row: ([row.n], row.n), "tags array<long>, key_group long")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: cw.Checkpointing(5), "interval=5: a bare number has no unit. Write interval='5s' or interval='5ms'."),
        (lambda: cw.Checkpointing(timeout=90), "timeout=90: a bare number has no unit"),
        (lambda: cw.Checkpointing(interval="soon"), "interval='soon' is not a duration. Write for example '500ms'"),
        (
            lambda: cw.Checkpointing(mode="twice"),
            "mode='twice': allowed are 'exactly_once', 'at_least_once', 'at_most_once'.",
        ),
        (lambda: cw.Checkpointing(storage="checkpoints"), "Did you mean 'file:checkpoints'?"),
        (lambda: cw.Checkpointing(retain=0), "retain=0: allowed is a whole number, at least 1."),
        (lambda: cw.Environment(parallelism=-2), "parallelism=-2: a whole number of at least 1 is needed."),
        (lambda: cw.Environment(parallelism="2"), "parallelism='2': a whole number"),
        (lambda: cw.Environment(max_parallelism="many"), "max_parallelism='many': a whole number"),
        (lambda: cw.Environment(parallelism=8, max_parallelism=4), "parallelism=8 is higher than max_parallelism=4"),
        (lambda: cw.Environment(checkpointing="10s"), "checkpointing='10s': pass cw.Checkpointing(...) or None."),
        (lambda: cw.Environment(state_backend="rocksdb"), "state_backend='rocksdb': pass cw.Memory() or cw.RocksDB()"),
        (lambda: cw.Environment(restart=3), "restart=3: pass cw.fixed_delay(...)"),
        (
            lambda: cw.Environment(restart=HalfAStrategy()),
            "pass cw.fixed_delay(...), cw.no_restart() or another strategy",
        ),
        (lambda: cw.Environment(slot_timeout=5), "slot_timeout=5: a bare number has no unit"),
        (lambda: cw.Environment(spark="local[4]"), "spark='local[4]' is no SparkSession"),
        (
            lambda: cw.Environment().enable_checkpointing("1s", modes="exactly_once"),
            "enable_checkpointing: there is no setting 'modes' (did you mean 'mode'?)",
        ),
        (lambda: cw.Environment().enable_checkpointing(1), "interval=1: a bare number has no unit"),
        (lambda: cw.Environment().read(3), "read: 3 is neither a source nor a Spark DataFrame."),
        (lambda: cw.Environment().read(cw.sequence(3), uid="a/b"), "uid='a/b': a non-empty string"),
        (lambda: cw.Environment().read(cw.sequence(3), parallelism=0), "parallelism=0: a whole number of at least 1"),
        (lambda: cw.text_files("/no/such/folder"), "text_files: /no/such/folder does not exist; correct the path"),
        (lambda: cw.from_rows(None, "n long"), "from_rows: rows=None; a list or another iterable"),
        (lambda: cw.from_rows(5, "n long"), "from_rows: rows=5; a list or another iterable"),
        (lambda: cw.csv_files(__file__, "n long", delimiter=None), "csv_files: delimiter=None; one ASCII character"),
        (lambda: cw.csv_files(__file__, "n long", header="no"), "csv_files: header='no'; allowed are True and False"),
        (lambda: cw.csv_files(__file__, "n long", multiline="no"), "csv_files: multiline='no'; allowed are True and"),
        (lambda: cw.csv_files(__file__, "n long", watch="no"), "csv_files: watch='no'; allowed are True and False"),
        (lambda: cw.parquet_files(__file__, "n long", watch=1), "parquet_files: watch=1; allowed are True and False"),
        (lambda: cw.parquet_sink(5), "parquet_sink: path=5; a folder is needed"),
        (lambda: cw.json_sink(""), "json_sink: path=''; a folder is needed"),
        (
            lambda: cw.parquet_sink("out", partition_by=5),
            "parquet_sink: partition_by=5; the name of a column is needed",
        ),
        (
            lambda: cw.parquet_sink("out", partition_by=["k", 5]),
            "partition_by=['k', 5]; the name of a column is needed",
        ),
        (
            lambda: cw.parquet_sink("out", partition_by=["k", "k"]),
            "partition_by names the column 'k' twice; name it once",
        ),
        (
            lambda: cw.parquet_sink("out", partition_by=".k"),
            "parquet_sink: partition_by='.k': readers pass over folders",
        ),
        (lambda: cw.socket("localhost", "9999"), "socket: port='9999'; allowed are 1 to 65535"),
        (lambda: cw.socket("localhost", True), "socket: port=True; allowed are 1 to 65535"),
        (lambda: cw.socket(5, 9999), "socket: host=5; a name or an address is needed"),
        (lambda: cw.socket("localhost", 9999, allow_data_loss="no"), "socket: allow_data_loss='no'; allowed are True"),
        (
            lambda: cw.Checkpointing(timeout="99999999999 days"),
            "timeout='99999999999 days' is longer than any job runs",
        ),
        (lambda: cw.Environment(state_backend=cw.Memory), "is the class, not a setting: write cw.Memory()."),
        (lambda: cw.Environment(state_backend=HalfABackend), "is the class, not a setting: write HalfABackend()."),
        (
            lambda: cw.Environment(state_backend=HalfABackend()),
            "For a cw.StateBackend of your own it lacks incremental, asynchronous.",
        ),
        (lambda: cw.spark_conf(slots="4"), "slots='4': a whole number of at least 1 is needed."),
        (lambda: cw.spark_conf(master=4), "master=4: a master's URL is needed, like 'spark://host:7077'."),
        (lambda: cw.Environment().read(Untold()), "read: Untold has no schema: give the class schema = 'id long'"),
        (lambda: cw.Environment().read(Untold), "read: Untold is the class, not a source: write Untold(...)."),
    ],
)
def test_a_wrong_setting_is_refused_at_the_call(call: Callable[[], object], message: str) -> None:
    with pytest.raises(cw.ConfigError) as refused:
        call()
    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("verb", "message"),
    [
        (lambda s: s.key_by("wrod"), "key_by: no column 'wrod' (did you mean 'word'?); available: n, word"),
        (lambda s: s.key_by(), "key_by: name at least one column."),
        (
            lambda s: s.key_by(pl.col("n")),
            """key_by: col("n") is not the name of a column. Write key_by('word', 'day')""",
        ),
        (lambda s: s.key_by(["n"]), "key_by: ['n'] is not the name of a column."),
        (lambda s: s.key_by("n", "n"), "key_by: column 'n' is given twice; name it once."),
        (lambda s: nested(s).key_by("tags"), "key column 'tags' has the type list<"),
        (lambda s: nested(s).key_by("key_group"), "key_by: 'key_group' is the name under which state stores"),
        (lambda s: s.key_by("n").agg(key_group=cw.count()), "agg(key_group=count()): 'key_group' is the name under"),
        (
            lambda s: s.key_by("word").agg(**{"total": cw.mean("n"), "total.sum": cw.sum("n")}),
            "agg(total.sum=sum(n)): 'total.sum' is stored for another result already; choose another name.",
        ),
        (lambda s: s.select("wrod"), "no column 'wrod' (did you mean 'word'?); available: n, word"),
        (lambda s: s.select(pl.col("m")), "no column 'm'"),
        (lambda s: s.select("n +"), "select: the SQL 'n +' cannot be read"),
        (lambda s: s.filter("m > 3"), "filter: 'm > 3': no column 'm'"),
        (lambda s: s.filter(3), "filter: 3 is not a function."),
        (lambda s: s.with_columns(twice="m * 2"), "no column 'm'; available: n, word"),
        (lambda s: s.key_by("word").agg(total=cw.sum("m")), "agg(total=sum(m)): no column 'm'"),
        (lambda s: s.key_by("word").agg(total=cw.sum("word")), "a column of type string cannot be added up"),
        (lambda s: s.key_by("n").agg(n=cw.count()), "agg(n=count()): 'n' is a key column already"),
        (lambda s: s.map(lambda row: row, "n lung"), "'lung' is not a type (did you mean 'long'?)"),
        (lambda s: s.map("lambda", "n long"), "map: 'lambda' is not a function."),
        (lambda s: s.map(lambda: 1, "n long"), "map: <lambda>() is called as fn(row); give it these parameters."),
        (lambda s: s.flat_map(lambda a, b: [], "n long"), "flat_map: <lambda>(a, b) is called as fn(row)"),
        (lambda s: s.filter(lambda: True), "filter: <lambda>() is called as fn(row)"),
        (lambda s: s.map_batches(lambda: 1, "n long"), "map_batches: <lambda>() is called as fn(df)"),
        (
            lambda s: s.map(Two().each, "n long"),
            "map: each(row: Any, other: Any) -> Any is called as fn(row); give it these parameters.",
        ),
        (lambda s: s.connect(s).map(len, "n long"), "map cannot stand behind connect: write it behind process"),
        (
            lambda s: s.key_by("n").connect(s.key_by("n")).agg(n=cw.count()),
            "agg cannot stand behind connect: write it behind process, or before connect.",
        ),
        (
            lambda s: s.key_by("n").process(ForgetsContext, "n long"),
            "process: ForgetsContext.process(row: Any) -> Any is called as ForgetsContext.process(row, ctx); give it these",
        ),
        (
            lambda s: s.key_by("n").process(ForgetsTime, "n long"),
            "process: ForgetsTime.on_timer(ctx: Any) -> Any is called as ForgetsTime.on_timer(timestamp, ctx)",
        ),
        (
            lambda s: s.connect(s).process(ForgetsSide, "n long"),
            "process: ForgetsSide.process_right(row: Any) -> Any is called as ForgetsSide.process_right(row, ctx)",
        ),
        (
            lambda s: s.process(OpensAlone, "n long"),
            "process: OpensAlone.open() -> None is called as OpensAlone.open(ctx); give it these parameters.",
        ),
        (
            lambda s: s.key_by("word").agg(n=AddsNothing()),
            "AddsNothing.add(accumulator: Any) -> Any is called as AddsNothing.add(accumulator, row)",
        ),
        (lambda s: s.key_by("word").agg(n=Own), "agg(n=Own): is the class, not an aggregate; write Own()."),
        (
            lambda s: (
                s.key_by("word")
                .window(cw.tumbling("1s"), time="processing")
                .agg(a=pl.col("n").sum(), b=pl.col("word").sum())
            ),
            'agg(b=col("word").sum()): `sum` operation not supported for dtype `str`',
        ),
        (lambda s: s.process(Counting, "n long"), "Counting keeps state by key: write s.key_by(...).process(...)."),
        (lambda s: s.key_by("n").process(cw.Process(), "n long"), "is not a cw.KeyedProcess."),
        (lambda s: s.side_output("late"), "side_output('late'): from_rows(1) has no such side output (it has: none)."),
        (lambda s: s.union(3), "union: 3 is not a stream."),
        (lambda s: s.union(s.select("n")), "union: the schemas differ: [n int64, word string] and [n int64]."),
        (lambda s: s.union(stream()), "union: the streams belong to different environments."),
        (lambda s: s.write("out"), "write: 'out' is not a sink. Use cw.parquet_sink(path)"),
        (lambda s: s.write(cw.parquet_sink("out", partition_by="day")), "parquet_sink: partition_by: no column 'day'"),
        (lambda s: s.collect(""), "name='': a non-empty string"),
        (lambda s: s.uid(""), "uid='': a non-empty string"),
        (lambda s: s.named(3), "named(3): a non-empty string is needed."),
        (lambda s: s.with_parallelism(0), "parallelism=0: a whole number of at least 1"),
        (
            lambda s: s.key_by("n").uid("x"),
            "uid cannot stand behind key_by: write it before it, or behind agg, reduce or process.",
        ),
        (lambda s: s.window(cw.tumbling("1s")), "window needs keys: write .key_by(...).window(...)."),
        (lambda s: s.agg(n=cw.count()), "agg needs keys"),
        (lambda s: s.key_by("word").sum("n"), "sum is written in agg, with the name of its result"),
        (lambda s: s.key_by("n").named("x"), "named cannot stand behind key_by"),
        (lambda s: s.key_by("n").with_parallelism(3), "with_parallelism cannot stand behind key_by"),
        (lambda s: s.key_by("n").map(lambda r: r, "n long"), "map cannot stand behind key_by"),
        (lambda s: s.key_by("n").write(cw.discard()), "write cannot stand behind key_by"),
        (lambda s: s.side_output(["x"]), "side_output(['x']): "),
        (lambda s: s.process(NeedsArguments, "n long"), "process: NeedsArguments cannot be made without arguments"),
        (
            lambda s: s.key_by("n").process(NoProcess, "n long"),
            "process: NoProcess needs a method process(self, row, ctx)",
        ),
        (
            lambda s: s.process(WithState, "n long"),
            "process: WithState.seen is state by key, and there is no key here",
        ),
        (lambda s: s.union(s).uid("x"), "uid() cannot stand here: key_by, union, rebalance"),
        (lambda s: s.rebalance().uid("x"), "uid() cannot stand here"),
        (lambda s: s.broadcast().named("x"), "named() cannot stand here"),
    ],
)
def test_a_wrong_verb_is_refused_where_it_is_written(verb: Callable[[cw.Stream], Any], message: str) -> None:
    with pytest.raises(cw.ConfigError) as refused:
        verb(stream())
    assert message in str(refused.value)


def refusal(env: cw.Environment, name: str = "job", restore: Any = "auto", **more: Any) -> str:
    with pytest.raises(cw.ConfigError) as refused:
        env.start(name, restore, **more)
    return str(refused.value)


def test_an_empty_pipeline_does_not_start() -> None:
    assert refusal(cw.Environment()) == (
        "The pipeline is empty: begin with env.read(source) and end with .write(sink)."
    )


def test_a_pipeline_without_a_sink_does_not_start() -> None:
    env = cw.Environment()
    stream(env).map(lambda row: row, "n long, word string")
    assert refusal(env).startswith("The pipeline has no sink: end it with .write(sink)")


def test_a_stream_that_nobody_reads_is_named() -> None:
    env = cw.Environment()
    rows = stream(env)
    rows.collect("rows")
    rows.filter("n > 1").named("Large").uid("large")
    assert refusal(env).startswith("Nothing reads the output of 'Large' (uid 'large'): write it somewhere")


def test_two_operators_of_one_uid_are_refused() -> None:
    env = cw.Environment()
    stream(env).filter("n > 1").uid("rows").collect("out")
    assert "The uid 'rows' is used by two operators, " in refusal(env)


def test_rows_that_are_collected_twice_under_one_name_are_told_by_that_name() -> None:
    env = cw.Environment()
    rows = stream(env)
    rows.collect("out")
    rows.filter("n > 1").collect("out")
    told = refusal(env)
    assert told.startswith("collect('out') is written twice, so that result.rows('out') could mean either.")
    assert "a.union(b).collect('out')" in told
    assert "collect-out" not in told


def test_a_uid_that_collected_rows_go_by_is_told_with_their_name() -> None:
    env = cw.Environment()
    stream(env).filter("n > 1").uid("collect-out").collect("out")
    assert refusal(env).startswith("uid='collect-out' is what collect('out') goes by.")


def test_a_function_that_cannot_be_sent_to_the_workers_is_refused_with_its_operator() -> None:
    lock = threading.Lock()
    env = cw.Environment()
    stream(env).map(lambda row: (lock.locked(),), "locked boolean").named("Locked").uid("locked").collect("out")
    told = refusal(env)
    assert told.startswith("Locked (uid 'locked') cannot be sent to the workers: cannot pickle")
    assert told.endswith("Open connections, locks and files inside open(), not before the job starts.")


@pytest.mark.parametrize("restore", ["auto", "latest", "fresh"])
def test_only_a_path_can_be_claimed(restore: str) -> None:
    with pytest.raises(cw.ConfigError, match=f"claim=True.*restore='{restore}' is none.*restore=<path>"):
        cw.Environment().start("job", restore, claim=True)


@pytest.mark.parametrize("argument", ["claim", "allow_non_restored_state"])
@pytest.mark.parametrize("value", ["no", 0, 1, None, pl.col("n")])
def test_what_a_restore_may_do_is_said_by_true_or_false_alone(argument: str, value: Any) -> None:
    env = cw.Environment()
    stream(env).collect("out")
    told = f"{argument}={value!r}: allowed are True and False."
    assert refusal(env, **{argument: value}) == told
    with pytest.raises(cw.ConfigError) as refused:
        env.execute("job", **{argument: value})
    assert str(refused.value) == told


@pytest.mark.parametrize("restore", ["", None, 3, pl.col("n")])
def test_restore_must_be_a_word_or_a_path(restore: Any) -> None:
    env = cw.Environment()
    stream(env).collect("out")
    assert refusal(env, restore=restore).startswith(
        f"restore={restore!r}: allowed are 'auto', 'latest', 'fresh' or the path of a checkpoint"
    )


@pytest.mark.parametrize("name", ["", 5, None])
def test_a_job_needs_a_name(name: Any) -> None:
    env = cw.Environment()
    stream(env).collect("out")
    assert refusal(env, name=name).startswith(f"name={name!r}: a job needs a non-empty name")


def test_settings_may_come_after_the_environment(tmp_path: Path) -> None:
    env = cw.Environment()
    env.enable_checkpointing("2s", storage=f"file:{tmp_path}", mode="at_least_once", retain=5)
    assert env.checkpointing == cw.Checkpointing("2s", storage=f"file:{tmp_path}", mode="at_least_once", retain=5)


def test_names_uids_and_parallelisms_reach_the_plan() -> None:
    env = cw.Environment(parallelism=3)
    rows = stream(env).filter("n > 1").named("Large").uid("large").with_parallelism(2)
    rows.write(cw.discard(), uid="out", parallelism=1)
    nodes = {node.uid: (node.name, node.parallelism) for node in env.define("job", 3).plan.graph.nodes}
    assert nodes == {"rows": ("from_rows(1)", 3), "large": ("Large", 2), "out": ("discard", 1)}


def test_a_union_can_be_aggregated_under_a_uid() -> None:
    env = cw.Environment()
    rows = stream(env)
    united = rows.union(rows.filter("n > 1").uid("large"))
    united.key_by("n").agg(count=cw.count()).uid("counts").write(cw.discard(), uid="out")
    uids = [node.uid for node in env.define("job", 1).plan.graph.nodes]
    assert uids == ["rows", "large", "counts-combine", "counts-combine-2", "counts", "out"]


def test_uids_that_nobody_gave_are_the_same_in_the_next_run_of_the_same_program() -> None:
    def uids() -> list[str]:
        env = cw.Environment()
        stream(env).filter("n > 1").select("n").write(cw.discard())
        return [node.uid for node in env.define("job", 1).plan.graph.nodes]

    assert uids() == uids()


def test_the_budget_for_rows_in_flight_reaches_the_subtasks() -> None:
    env = cw.Environment(checkpointing=cw.Checkpointing(storage="memory", unaligned=True, max_in_flight="3MB"))
    env.read(cw.sequence(3), uid="in").key_by("value").agg(n=cw.count()).collect("out")
    definition = env.define("job", 2)
    setups = [definition.setup_of(subtask, Attempt(1), "i") for subtask in definition.plan.subtasks]
    assert {setup.limits.in_flight_bytes for setup in setups} == {3 * 2**20}
