"""A program that was changed between two runs: what it cannot restore is refused before anything runs, and named."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import cutwater as cw
from cutwater.checkpoint.file_storage import FileStorage
from cutwater.checkpoint.job_store import JobStore
from cutwater.checkpoint.start import Resume, StartFresh, choose_start
from cutwater.checkpoint.statistics import CheckpointHistory
from cutwater.connectors.manifest import committed_files
from cutwater.errors import RestoreError
from cutwater.job.deployment import Deployment
from cutwater.job.handle import JobState
from cutwater.job.moved_records import MovedRecords
from cutwater.spark.starting_point import StartingPoint
from cutwater.state.operator_states import BoundOperatorStates
from cutwater.subtask.chain import OperatorFailure
from cutwater.testing.simulation import Simulation
from tests.own_sink import OwnSink
from tests.simulation.killed import staged
from tests.simulation.scene import Scene

Build = Callable[[cw.Environment], Any]


def numbers(env: cw.Environment, n: int | None = 40_000) -> cw.Stream:
    return env.read(cw.sequence(n, rate=1000), uid="numbers").with_columns(k=pl.col("value") % 3)


class Resumed(Simulation):
    """Another driver goes on where the one before was killed."""

    def start_attempt(self, start: Any = None) -> None:
        super().start_attempt(None)


def killed_behind_checkpoint(folder: Path, build: Build) -> None:
    """Checkpoint 1 is complete and its output prepared, but nobody was told so."""
    scene = Scene(folder, build=build)
    scene.trigger()
    scene.step_until(lambda: scene.has_metadata(1))


class StartedAgain:
    """As ``env.start`` does it, up to where Spark is needed."""

    def __init__(
        self,
        folder: Path,
        build: Build,
        *,
        allow_non_restored_state: bool = False,
        mode: str = "exactly_once",
        parallelism: int = 1,
    ) -> None:
        checkpointing = cw.Checkpointing("1h", storage=f"file:{folder / 'checkpoints'}", mode=mode)
        env = cw.Environment(parallelism=parallelism, checkpointing=checkpointing)
        build(env)
        definition = env.define("job", parallelism)
        self.store = JobStore(FileStorage(str(folder / "checkpoints")), "job")
        self.state = JobState("job", CheckpointHistory())
        self.starting_point = StartingPoint(
            definition,
            self.store,
            self.state,
            MovedRecords(definition.plan.source_subtasks),
            allow_non_restored_state=allow_non_restored_state,
        )
        self.start = self.starting_point.choose("auto")

    def deploy(self) -> Deployment:
        record = self.store.acquire_attempt(self.start)
        return self.starting_point.deploy(self.start, record.incarnation)

    @property
    def log(self) -> str:
        return "\n".join(self.state.log.lines())


class Largest(cw.KeyedProcess):
    most = cw.ValueState("long")

    def process(self, row: Any, ctx: Any) -> Any:
        self.most.value = row.value
        yield (row.value,)


class Totals(cw.KeyedProcess):
    total = cw.ValueState("long")

    def process(self, row: Any, ctx: Any) -> Any:
        self.total.value = row.value
        yield (row.value,)


class Forgetful(cw.KeyedProcess):
    def process(self, row: Any, ctx: Any) -> Any:
        yield (row.value,)


class Reminded(Largest):
    def process(self, row: Any, ctx: Any) -> Any:
        ctx.timers.processing_time(ctx.now + 3_600_000)
        yield from super().process(row, ctx)

    def on_timer(self, timestamp: int, ctx: Any) -> Any: ...


def parquet(folder: Path, name: str = "out") -> Build:
    return lambda env: numbers(env).write(cw.parquet_sink(folder / name), uid="out")


def keyed(step: Callable[[cw.KeyedStream], cw.Stream]) -> Build:
    return lambda env: step(numbers(env).key_by("k")).uid("step").write(cw.discard(), uid="nowhere")


AGG = keyed(lambda stream: stream.agg(n=cw.count()))
REDUCE = keyed(lambda stream: stream.reduce(lambda old, new: new))
PROCESS = keyed(lambda stream: stream.process(Largest(), "most long"))
REMINDED = keyed(lambda stream: stream.process(Reminded(), "most long"))


@pytest.mark.parametrize(
    ("sink", "told"),
    [
        (cw.discard, r"uid 'out': committables of parquet_sink\(.*/out\); now it is discard"),
        (cw.print_sink, "now it is print_sink"),
        (OwnSink, "now it is OwnSink"),
    ],
)
def test_prepared_output_is_not_dropped_because_its_sink_became_another(tmp_path: Path, sink: Any, told: str) -> None:
    killed_behind_checkpoint(tmp_path, parquet(tmp_path))
    with pytest.raises(RestoreError, match=told):
        StartedAgain(tmp_path, lambda env: numbers(env).write(sink(), uid="out"))


def test_prepared_output_is_not_dropped_because_its_sink_became_collect(tmp_path: Path) -> None:
    out = cw.parquet_sink(tmp_path / "out")
    killed_behind_checkpoint(tmp_path, lambda env: numbers(env).write(out, uid="collect-rows"))
    with pytest.raises(RestoreError, match="now it is collect"):
        StartedAgain(tmp_path, lambda env: numbers(env).collect("rows"))


def test_prepared_output_is_dropped_when_that_is_asked_for_and_the_log_says_so(tmp_path: Path) -> None:
    killed_behind_checkpoint(tmp_path, parquet(tmp_path))
    again = StartedAgain(
        tmp_path, lambda env: numbers(env).write(cw.discard(), uid="out"), allow_non_restored_state=True
    )
    deployment = again.deploy()
    assert [each.uid for restore in deployment.restores.values() for each in restore.operators] == ["numbers"]
    assert deployment.visible == []
    assert "not restored: uid 'out': committables of parquet_sink" in again.log


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        (AGG, REDUCE, "uid 'step': aggregates of agg.n=count.; now it is reduce"),
        (REDUCE, PROCESS, "uid 'step': reduced of reduce; now it is process"),
        (
            AGG,
            lambda env: numbers(env).filter(pl.col("k") == 0).uid("step").write(cw.discard(), uid="nowhere"),
            "uid 'step': aggregates of agg.n=count.; now it is filter, which keeps no state",
        ),
    ],
)
def test_state_is_not_given_to_an_operator_of_another_kind(
    tmp_path: Path, before: Build, after: Build, told: str
) -> None:
    killed_behind_checkpoint(tmp_path, before)
    with pytest.raises(RestoreError, match=told):
        StartedAgain(tmp_path, after)


@pytest.mark.parametrize(
    ("after", "told"),
    [
        (keyed(lambda stream: stream.agg(n=cw.sum("value"))), r"agg\(n=sum\)"),
        (keyed(lambda stream: stream.agg(n=cw.count(), most=cw.max("value"))), r"agg\(most=max, n=count\)"),
    ],
)
def test_aggregates_do_not_go_on_as_others(tmp_path: Path, after: Build, told: str) -> None:
    killed_behind_checkpoint(tmp_path, AGG)
    with pytest.raises(RestoreError, match=rf"uid 'step': aggregates of agg\(n=count\); now it is {told}"):
        StartedAgain(tmp_path, after)


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        (PROCESS, keyed(lambda stream: stream.process(Totals(), "total long")), "most; Totals declares total"),
        (PROCESS, keyed(lambda stream: stream.process(Forgetful(), "value long")), "most; Forgetful declares no state"),
        (REMINDED, PROCESS, "timers.processing; Largest declares most"),
    ],
)
def test_a_state_that_the_function_no_longer_declares_is_refused_at_the_start(
    tmp_path: Path, before: Build, after: Build, told: str
) -> None:
    killed_behind_checkpoint(tmp_path, before)
    with pytest.raises(RestoreError, match=rf"Checkpoint 1 of job 'job' holds state(?s:.)*\n  uid 'step': {told}\n"):
        StartedAgain(tmp_path, after)


def test_a_state_that_is_no_longer_declared_is_dropped_when_that_is_asked_for_and_the_log_says_so(
    tmp_path: Path,
) -> None:
    killed_behind_checkpoint(tmp_path, PROCESS)
    again = StartedAgain(
        tmp_path, keyed(lambda stream: stream.process(Totals(), "total long")), allow_non_restored_state=True
    )
    deployment = again.deploy()
    assert not [table for restore in deployment.restores.values() for table in restore.tables()]
    assert "not restored: uid 'step': most; Totals declares total" in again.log


class Remembers(cw.Process):
    rows = cw.ListOperatorState("long")
    all = cw.UnionOperatorState("long")

    def process(self, row: Any, ctx: Any) -> Any:
        self.rows.append(row.value)
        self.all.append(row.value)
        yield (row.value,)


class RemembersRows(cw.Process):
    rows = cw.ListOperatorState("long")

    def process(self, row: Any, ctx: Any) -> Any:
        yield (len(self.rows),)


class RemembersOtherwise(cw.Process):
    rows = cw.UnionOperatorState("long")
    all = cw.UnionOperatorState("long")

    def process(self, row: Any, ctx: Any) -> Any: ...


class RemembersWindows(cw.WindowProcess):
    told = cw.ListOperatorState("long")

    def process(self, rows: list[Any], ctx: Any) -> Any: ...

    def open(self, ctx: Any) -> None:
        if not len(self.told):
            self.told.append(1)


def plain(function: Any) -> Build:
    return lambda env: numbers(env).process(function, "value long").uid("step").write(cw.discard(), uid="nowhere")


def windows(function: Any, kind: Any) -> Build:
    return keyed(lambda stream: stream.window(kind, time="processing").process(function, "value long"))


def no_rows(rows: list[Any], ctx: Any) -> Any:
    return []


@pytest.mark.parametrize(
    ("before", "after", "declares", "told"),
    [
        (
            plain(Remembers),
            plain(RemembersRows),
            RemembersRows,
            r"all \(UnionOperatorState\); RemembersRows declares rows \(ListOperatorState\)",
        ),
        (plain(Remembers), plain(RemembersOtherwise), RemembersOtherwise, r"rows \(ListOperatorState\); RemembersOther"),
        (
            plain(Remembers),
            lambda env: numbers(env).map(lambda row: row, "value long, k long").uid("step").write(cw.discard(), uid="nowhere"),
            None,
            "list_state, union_state of process; now it is map, which keeps no state",
        ),
        *(
            (windows(RemembersWindows, kind), windows(no_rows, kind), Forgetful, r"told \(ListOperatorState\)")
            for kind in (cw.tumbling("1h"), cw.session("1h"))
        ),
    ],
)  # fmt: skip
def test_operator_state_that_is_no_longer_declared_is_refused_at_the_start_or_dropped(
    tmp_path: Path, before: Build, after: Build, declares: Any, told: str
) -> None:
    killed_behind_checkpoint(tmp_path, before)
    with pytest.raises(RestoreError, match=rf"Checkpoint 1 of job 'job' holds state(?s:.)*\n  uid 'step': {told}"):
        StartedAgain(tmp_path, after)
    again = StartedAgain(tmp_path, after, allow_non_restored_state=True)
    restores = again.deploy().restores.values()
    assert re.search(rf"not restored: uid 'step': {told}", again.log)
    for parts in (each.inline for restore in restores for each in restore.operators if each.uid == "step"):
        BoundOperatorStates(declares(), "step", parts)  # finds nothing that it does not know


def test_operator_state_goes_on_when_another_state_is_dropped(tmp_path: Path) -> None:
    killed_behind_checkpoint(tmp_path, plain(Remembers))
    deployment = StartedAgain(tmp_path, plain(RemembersRows), allow_non_restored_state=True).deploy()
    (step,) = [
        each for restore in deployment.restores.values() for each in restore.operators if each.uid == "step"
    ]  # fmt: skip
    assert {entry["state"] for entry in step.inline[0]["list_state"]} == {"rows"}
    assert step.inline[0]["union_state"] == []


def test_state_whose_operator_is_gone_is_dropped_when_that_is_asked_for_and_the_log_says_so(tmp_path: Path) -> None:
    killed_behind_checkpoint(tmp_path, PROCESS)
    again = StartedAgain(
        tmp_path, lambda env: numbers(env).write(cw.discard(), uid="nowhere"), allow_non_restored_state=True
    )
    again.deploy()
    assert "not restored: uid 'step': most" in again.log


def test_a_state_that_the_function_declares_anew_begins_empty(tmp_path: Path) -> None:
    killed_behind_checkpoint(tmp_path, PROCESS)
    scene = Scene(tmp_path, kind=Resumed, build=REMINDED)
    scene.trigger()
    scene.step_until(lambda: scene.has_metadata(2))


@pytest.mark.parametrize("step", [lambda stream: stream.agg(n=cw.count()), lambda stream: stream.reduce(min)])
def test_state_by_two_columns_does_not_go_on_by_one_of_them(tmp_path: Path, step: Any) -> None:
    def by(*keys: str) -> Build:
        return lambda env: step(numbers(env).key_by(*keys)).uid("step").write(cw.discard(), uid="nowhere")

    killed_behind_checkpoint(tmp_path, by("k", "value"))
    with pytest.raises(OperatorFailure, match="the program keys it by k, the checkpoint holds it by k, value"):
        Scene(tmp_path, kind=Resumed, build=by("k")).finish()


def test_positions_are_not_given_to_a_source_of_another_kind(tmp_path: Path) -> None:
    (tmp_path / "lines.txt").write_text("a\nb\n")
    killed_behind_checkpoint(tmp_path, lambda env: numbers(env).write(cw.discard(), uid="nowhere"))
    with pytest.raises(
        RestoreError, match=r"uid 'numbers': splits of sequence\(40000\); now it is text_files\(.*lines.txt\)"
    ):
        StartedAgain(
            tmp_path,
            lambda env: env.read(cw.text_files(tmp_path / "lines.txt"), uid="numbers").write(
                cw.discard(), uid="nowhere"
            ),
        )


def test_a_source_that_goes_on_with_other_settings_says_what_that_means(tmp_path: Path) -> None:
    killed_behind_checkpoint(tmp_path, lambda env: numbers(env).write(cw.discard(), uid="nowhere"))
    again = StartedAgain(tmp_path, lambda env: numbers(env, 50_000).write(cw.discard(), uid="nowhere"))
    again.deploy()
    assert "source 'numbers' was sequence(40000) when checkpoint 1 was taken and is sequence(50000) now" in again.log


# --- at most once: there is no state, but positions are reserved --------------------------------------------------------


def killed_behind_reservation(folder: Path, build: Build, mode: str = "at_most_once") -> None:
    scene = Scene(folder, build=build, mode=mode)
    scene.step_until(scene.store.reservations.are_there)


def reading(source: cw.Source, uid: str = "numbers") -> Build:
    return lambda env: env.read(source, uid=uid).write(cw.discard(), uid="nowhere")


COUNTING = reading(cw.sequence(40_000, rate=1000))


def started_at_most_once(folder: Path, build: Build, **more: Any) -> StartedAgain:
    return StartedAgain(folder, build, mode="at_most_once", **more)


def splits_of(deployment: Deployment) -> list[Any]:
    return [entry["split"] for entries in deployment.splits.values() for entry in entries]


@pytest.fixture
def lines(tmp_path: Path) -> cw.Source:
    (tmp_path / "lines.txt").write_text("a\nb\n")
    return cw.text_files(tmp_path / "lines.txt")


def test_reserved_positions_are_not_given_to_a_source_of_another_kind(tmp_path: Path, lines: cw.Source) -> None:
    killed_behind_reservation(tmp_path, COUNTING)
    with pytest.raises(
        RestoreError,
        match=r"Job 'job' holds reserved positions \(mode='at_most_once'\) that this program gives to something else:\n"
        r"  uid 'numbers': splits of sequence\(40000\); now it is text_files\(.*lines.txt\)\nGive what is new a uid",
    ):
        started_at_most_once(tmp_path, reading(lines))


def test_reserved_positions_are_not_forgotten_because_their_source_has_another_uid(tmp_path: Path) -> None:
    killed_behind_reservation(tmp_path, COUNTING)
    with pytest.raises(
        RestoreError, match=r"uid 'numbers': splits of sequence\(40000\)\nThis program has: nowhere, renamed"
    ):
        started_at_most_once(tmp_path, reading(cw.sequence(40_000), uid="renamed"))


def test_reserved_positions_are_dropped_for_good_when_that_is_asked_for_and_the_log_says_so(
    tmp_path: Path, lines: cw.Source
) -> None:
    killed_behind_reservation(tmp_path, COUNTING)
    again = started_at_most_once(tmp_path, reading(lines), allow_non_restored_state=True)
    first = again.deploy()
    assert all("path" in split for split in splits_of(first))
    assert "not restored: uid 'numbers': splits of sequence(40000); now it is text_files" in again.log
    next_time = started_at_most_once(tmp_path, reading(lines))
    assert splits_of(next_time.deploy()) == splits_of(first)


def test_a_source_that_nothing_was_read_of_may_become_another(tmp_path: Path, lines: cw.Source) -> None:
    Scene(tmp_path, build=COUNTING, mode="at_most_once")
    assert all("path" in split for split in splits_of(started_at_most_once(tmp_path, reading(lines)).deploy()))


def test_at_most_once_does_not_cut_into_other_splits_what_was_read_already(tmp_path: Path) -> None:
    killed_behind_reservation(tmp_path, COUNTING)
    again = started_at_most_once(tmp_path, COUNTING, parallelism=2)
    assert splits_of(again.deploy()) == [{"s": 0, "p": 1}]


def test_at_most_once_says_what_is_lost_when_it_goes_on(tmp_path: Path) -> None:
    killed_behind_reservation(tmp_path, COUNTING)
    again = started_at_most_once(tmp_path, COUNTING)
    again.deploy()
    (told,) = again.state.log.lines()
    assert told.startswith("mode='at_most_once': nothing is restored. What was reserved to be read counts as read")
    assert "by source: 'numbers' (splits: 1)" in told
    assert "had not reached a sink when the last attempt ended are lost, and so is all state" in told


def test_at_most_once_says_nothing_of_the_kind_before_anything_was_read(tmp_path: Path) -> None:
    started = started_at_most_once(tmp_path, COUNTING)
    started.deploy()
    assert started.log == ""


def test_at_most_once_too_says_what_other_settings_of_a_source_mean(tmp_path: Path) -> None:
    killed_behind_reservation(tmp_path, COUNTING)
    again = started_at_most_once(tmp_path, reading(cw.sequence(50_000)))
    again.deploy()
    assert "source 'numbers' was sequence(40000) when the job ran before and is sequence(50000) now" in again.log


def rows_in(folder: Path) -> list[int]:
    return sorted(pl.concat([pl.read_parquet(file) for file in sorted(folder.glob("*.parquet"))])["value"])


def wrote(folder: Path) -> list[int]:
    """What readers of whole checkpoints see of ``folder``; it is what is in it."""
    assert committed_files(folder) == sorted(str(file) for file in folder.glob("*.parquet"))
    return rows_in(folder)


RECORDS = 500


def into(folder: Path) -> Build:
    return lambda env: numbers(env, RECORDS).write(cw.parquet_sink(folder), uid="out")


def test_output_prepared_for_one_folder_is_committed_there_by_a_program_that_writes_to_another(tmp_path: Path) -> None:
    killed_behind_checkpoint(tmp_path, into(tmp_path / "old"))
    assert not list((tmp_path / "old").glob("*.parquet"))
    scene = Scene(tmp_path, kind=Resumed, build=into(tmp_path / "new"))
    scene.finish()
    before, after = wrote(tmp_path / "old"), wrote(tmp_path / "new")
    assert before and after
    assert before + after == list(range(RECORDS))
    assert not staged(tmp_path)


def test_a_restart_of_the_changed_program_neither_loses_nor_repeats_what_the_old_folder_has(tmp_path: Path) -> None:
    killed_behind_checkpoint(tmp_path, into(tmp_path / "old"))
    scene = Scene(tmp_path, kind=Resumed, build=into(tmp_path / "new"))
    scene.step_until(lambda: bool(list((tmp_path / "old").glob("*.parquet"))))
    scene.simulation.crash()
    scene.finish()
    assert wrote(tmp_path / "old") + wrote(tmp_path / "new") == list(range(RECORDS))


def test_output_that_moved_with_its_folder_is_found_where_it_is_now(tmp_path: Path) -> None:
    killed_behind_checkpoint(tmp_path, into(tmp_path / "old"))
    (tmp_path / "old").rename(tmp_path / "new")
    (tmp_path / ".old.cutwater").rename(tmp_path / ".new.cutwater")
    Scene(tmp_path, kind=Resumed, build=into(tmp_path / "new")).finish()
    assert wrote(tmp_path / "new") == list(range(RECORDS))
    assert not (tmp_path / "old").exists() and not (tmp_path / ".old.cutwater").exists()


def test_a_job_that_starts_from_the_checkpoint_of_another_commits_what_that_one_prepared_in_its_folder(
    tmp_path: Path,
) -> None:
    killed_behind_checkpoint(tmp_path, into(tmp_path / "old"))
    path = str(tmp_path / "checkpoints" / "job" / "chk-1")
    store = JobStore(FileStorage(str(tmp_path / "checkpoints")), "other")
    start = choose_start(path, store.facts(path, all_sinks_idempotent=False, on_damaged="fail"))
    assert isinstance(start, Resume)

    class FromPath(Simulation):
        def start_attempt(self, given: Any = None) -> None:
            super().start_attempt(start if isinstance(given, StartFresh) else given)

    Scene(tmp_path, kind=FromPath, build=into(tmp_path / "new"), job="other").finish()
    assert wrote(tmp_path / "old") + wrote(tmp_path / "new") == list(range(RECORDS))


def test_a_job_goes_on_in_the_mode_it_had_or_says_why_not(tmp_path: Path) -> None:
    killed_behind_reservation(tmp_path, COUNTING)
    with pytest.raises(RestoreError, match=r"was in mode='at_most_once', .* rows would be read again"):
        StartedAgain(tmp_path, COUNTING)


def test_a_job_with_a_checkpoint_does_not_go_on_at_most_once(tmp_path: Path) -> None:
    scene = Scene(tmp_path, build=COUNTING)
    scene.trigger()
    scene.step_until(lambda: bool(scene.store.completed()))
    with pytest.raises(RestoreError, match=r"is to go on in mode='at_most_once', which restores none: rows would be"):
        started_at_most_once(tmp_path, COUNTING)
