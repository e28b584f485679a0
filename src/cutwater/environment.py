"""The environment: settings, the pipeline being written, and the ways to run it."""

import os
import time
from dataclasses import fields
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar, cast

import cloudpickle  # type: ignore[import-untyped]  # ships no types

from cutwater.arguments import methods_take_no_others, takes_no_others
from cutwater.checkpoint.job_store import JobStore
from cutwater.checkpoint.memory_storage import MemoryStorage
from cutwater.checkpoint.statistics import CheckpointHistory
from cutwater.checkpoint.storage import CheckpointStorage
from cutwater.checkpoint.storage_url import open_storage
from cutwater.config import Checkpointing, MemoryStorageSetting, check_flag
from cutwater.connectors.collect import Collect
from cutwater.connectors.source import Source
from cutwater.connectors.spark_table import SparkTable, is_dataframe
from cutwater.duration import Duration, parse_duration
from cutwater.errors import ConfigError
from cutwater.explain import Explanation, explain
from cutwater.flow.key_groups import check_parallelism, default_max_parallelism
from cutwater.graph.logical import NodeKind
from cutwater.graph.plan import make_plan
from cutwater.guarantee import refuse_broken_promises
from cutwater.job.definition import CollectedOutput, JobDefinition
from cutwater.job.handle import Job, JobState
from cutwater.job.result import JobResult
from cutwater.notices import start_notices
from cutwater.pipeline import Draft, Upstream, checked_parallelism, checked_uid, to_graph
from cutwater.restart import RestartStrategy, fixed_delay, is_strategy
from cutwater.schema import arrow_schema, did_you_mean
from cutwater.state.backend import StateBackend, checked_backend
from cutwater.state.memory import Memory
from cutwater.stream import Stream
from cutwater.subtask.limits import FlowLimits

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")

MOST_SUBTASKS_BY_DEFAULT = 4
CHECKPOINT_SETTINGS = tuple(each.name for each in fields(Checkpointing) if each.name != "interval")


DEFAULT_CHECKPOINTING = Checkpointing()
"""Every ten seconds, exactly once, into the folder ``checkpoints``: who says nothing loses nothing."""


@takes_no_others
@methods_take_no_others
class Environment:
    """Write a pipeline with ``read`` and the methods of streams, then ``execute`` or ``start`` it.

    Without ``spark`` a local session with slots enough is started; without ``parallelism`` it follows from the slots.
    """

    def __init__(
        self,
        spark: "SparkSession | None" = None,
        parallelism: int | None = None,
        max_parallelism: int | None = None,
        checkpointing: Checkpointing | None = DEFAULT_CHECKPOINTING,
        state_backend: StateBackend | None = None,
        restart: RestartStrategy | None = None,
        slot_timeout: Duration = "1 min",
    ) -> None:
        if spark is not None:
            from cutwater.spark.session import refuse_unfit

            refuse_unfit(spark)
        self._spark = spark
        self.parallelism = None if parallelism is None else checked_parallelism(parallelism)
        self.max_parallelism = None
        if max_parallelism is not None:
            self.max_parallelism = checked_parallelism(max_parallelism, "max_parallelism")
            check_parallelism(self.parallelism or 1, self.max_parallelism)
        if checkpointing is not None and not isinstance(checkpointing, Checkpointing):
            raise ConfigError(f"checkpointing={checkpointing!r}: pass cw.Checkpointing(...) or None.")
        self.checkpointing = checkpointing
        self.state_backend = Memory() if state_backend is None else checked_backend(state_backend, "state_backend=")
        if restart is not None and (isinstance(restart, type) or not is_strategy(restart)):
            raise ConfigError(f"restart={restart!r}: pass cw.fixed_delay(...), cw.no_restart() or another strategy.")
        self.restart: RestartStrategy = restart or fixed_delay(attempts=3, delay="1s")
        self.slot_timeout: timedelta = parse_duration("slot_timeout", slot_timeout)
        self.drafts: list[Draft] = []
        self._given: list[object] = []

    @property
    def spark(self) -> "SparkSession":
        """The session that jobs of this environment run on; a local one is started if there is none yet."""
        if self._spark is None:
            from cutwater.spark.session import local_session

            self._spark = local_session(0)
        return self._spark

    def enable_checkpointing(self, interval: Duration, **settings: Any) -> None:
        """The other way to say ``checkpointing=cw.Checkpointing(interval, ...)``."""
        for name in settings:
            if name not in CHECKPOINT_SETTINGS:
                raise ConfigError(
                    f"enable_checkpointing: there is no setting {name!r}{did_you_mean(name, CHECKPOINT_SETTINGS)}; "
                    f"allowed are {', '.join(CHECKPOINT_SETTINGS)}."
                )
        self.checkpointing = Checkpointing(interval, **settings)

    # --- writing the pipeline -----------------------------------------------------------------------------------------

    def read(self, source: Any, uid: str | None = None, parallelism: int | None = None) -> Stream:
        """A stream of a source's records; a Spark DataFrame may stand for ``cw.spark_table(df)``."""
        if isinstance(source, type) and issubclass(source, Source):
            raise ConfigError(f"read: {source.__name__} is the class, not a source: write {source.__name__}(...).")
        if not isinstance(source, Source):
            if not is_dataframe(source):
                raise ConfigError(f"read: {source!r} is neither a source nor a Spark DataFrame.")
            source = SparkTable(source)
        own = type(source).__name__
        if not hasattr(source, "schema"):
            raise ConfigError(
                f"read: {own} has no schema: give the class schema = 'id long' or what its records have in fact."
            )
        schema = arrow_schema(source.schema, f"read: the schema of {own}")
        sides = {tag: arrow_schema(side) for tag, side in source.side_schemas.items()}
        draft = Draft(source.describe(), NodeKind.SOURCE, source, (), schema, sides)
        draft.uid = checked_uid(uid) if uid is not None else None
        draft.parallelism = checked_parallelism(parallelism) if parallelism is not None else None
        self.add(draft)
        return Stream(self, (Upstream(draft),), schema, nameable=True)

    def add(self, draft: Draft) -> None:
        """Used by streams."""
        self.drafts.append(draft)

    def own(self, method: str, given: T) -> T:
        """Used by streams: a function or sink for one operator alone. It is ``given`` itself, or a copy if another operator has
        that: two in one chain would share the object, and each other's state."""
        if not any(given is each for each in self._given):
            self._given.append(given)
            return given
        try:
            # Whole, as it is shipped: it may hold methods of its own.
            return cast(T, cloudpickle.loads(cloudpickle.dumps(given)))
        except Exception as error:
            kind = type(given).__name__
            raise ConfigError(
                f"{method}: this {kind} is given to two operators, and cannot be copied for the second: {error}. "
                f"Give each of them a {kind} of its own."
            ) from error

    # --- running it ---------------------------------------------------------------------------------------------------

    def define(self, name: str, parallelism: int) -> JobDefinition:
        """The job, checked as far as that is possible without Spark."""
        _check_name(name)
        checkpointing = self.checkpointing
        graph = to_graph(self.drafts, parallelism)
        widest = max(node.parallelism for node in graph.nodes)
        max_parallelism = self.max_parallelism or default_max_parallelism(widest)
        check_parallelism(widest, max_parallelism)
        plan = make_plan(graph, max_parallelism)
        by_uid = dict(zip((node.uid for node in graph.nodes), self.drafts, strict=True))
        sources = {uid: draft.body for uid, draft in by_uid.items() if isinstance(draft.body, Source)}
        sinks = {uid: draft.sink for uid, draft in by_uid.items() if draft.sink is not None}
        refuse_broken_promises(sources, sinks, checkpointing)
        schemas = {
            number: (by_uid[edge.source].side_schemas[edge.tag] if edge.tag else by_uid[edge.source].schema)
            for number, edge in enumerate(plan.edges)
        }
        collected = {
            sink.name: CollectedOutput(uid, by_uid[uid].schema)
            for uid, sink in sinks.items()
            if isinstance(sink, Collect)
        }
        return JobDefinition(
            name=name,
            plan=plan,
            schemas=schemas,
            sources=sources,
            sinks=sinks,
            collected=collected,
            backend=self.state_backend,
            restart=self.restart,
            checkpointing=checkpointing,
            limits=FlowLimits() if checkpointing is None else FlowLimits(in_flight_bytes=checkpointing.max_in_flight),
            slot_timeout=self.slot_timeout,
            notices=start_notices(sources, sinks, checkpointing, self.restart.longest_delay + self.slot_timeout),
        )

    def start(
        self,
        name: str,
        restore: str | os.PathLike[str] = "auto",
        *,
        claim: bool = False,
        allow_non_restored_state: bool = False,
    ) -> Job:
        """Start the job and return its handle. A plan that cannot run says why here, before anything starts."""
        check_flag("claim", claim)
        check_flag("allow_non_restored_state", allow_non_restored_state)
        # Spark is imported only when a job runs on it: the simulation and the tests of pipelines do without.
        from cutwater.spark.blueprint import refuse_unshippable
        from cutwater.spark.executors import await_executors
        from cutwater.spark.runner import SparkRunner
        from cutwater.spark.session import begin_use, choosing, kept_because, refuse_unfit, session_for_job
        from cutwater.spark.slots import refuse_too_few, total_slots

        wanted = _checked_restore(restore)
        if claim and wanted in ("auto", "latest", "fresh"):
            raise ConfigError(
                f"claim=True takes over the files of a checkpoint that is restored by its path, and restore={wanted!r} is "
                "none: leave claim out, or write restore=<path>."
            )
        definition = self.define(name, self.parallelism or default_parallelism())
        refuse_unshippable(definition)
        store = JobStore(storage_of(self.checkpointing), name)
        with choosing:
            # A DataFrame lives on its session: with one in the pipeline the session stays, large enough or not.
            tables = any(isinstance(source, SparkTable) for source in definition.sources.values())
            spark = self._spark or session_for_job(0 if tables else definition.plan.slots_needed)
            refuse_unfit(spark)
            await_executors(spark, definition.plan.slots_needed)
            if self.parallelism is None:
                definition = self._fit_into(total_slots(spark), name)
            refuse_too_few(
                spark, definition.plan.slots_needed, lambda: kept_because(spark) if self._spark is None else None
            )
            use = begin_use(spark, name)
        # From here on the job's storage is asked, which may take its time: other jobs can start meanwhile.
        try:
            state = JobState(name, CheckpointHistory(retained=(), epoch_offset=_epoch_offset()))
            runner = SparkRunner(
                spark, definition, store, state,
                restore=wanted, claim=claim, allow_non_restored_state=allow_non_restored_state, session_free=use.end,
            )  # fmt: skip
            job = Job(state, runner)
            runner.start()
        except BaseException:
            use.end()
            raise
        return job

    def execute(
        self,
        name: str,
        restore: str | os.PathLike[str] = "auto",
        *,
        claim: bool = False,
        allow_non_restored_state: bool = False,
    ) -> JobResult:
        """Run the job to its end, with a progress display on a terminal. Ctrl-C cancels it."""
        from cutwater.progress import watch

        return watch(self.start(name, restore, claim=claim, allow_non_restored_state=allow_non_restored_state))

    def explain(self) -> Explanation:
        """The graph, its chains and levels, the slots needed and what each path guarantees; printed, and returned to search in."""
        text = explain(self.define("explain", self.parallelism or default_parallelism()))
        print(text)  # noqa: T201 (what explain is for)
        return Explanation(text)

    def _fit_into(self, slots: int, name: str) -> JobDefinition:
        """Without a parallelism of the user's: the highest that the session has room for."""
        for parallelism in range(default_parallelism(), 0, -1):
            definition = self.define(name, parallelism)
            if definition.plan.slots_needed <= slots:
                return definition
        return self.define(name, 1)


def storage_of(checkpointing: Checkpointing | None) -> CheckpointStorage:
    match checkpointing.storage if checkpointing is not None else None:
        case None:
            return MemoryStorage()
        case MemoryStorageSetting(max_state):
            return MemoryStorage(max_state)
        case str() as url:
            return open_storage(url)


def _check_name(name: object) -> None:
    if not isinstance(name, str) or not name:
        raise ConfigError(f"name={name!r}: a job needs a non-empty name; its checkpoints are found by it.")


def _checked_restore(restore: object) -> str:
    if isinstance(restore, os.PathLike):
        path = os.fsdecode(restore)
        # A folder is never one of the words, whatever it is called; Path(info.path) has the form of a URL.
        return path if path.startswith("file:") else os.path.abspath(path)
    if not isinstance(restore, str) or not restore:
        raise ConfigError(f"restore={restore!r}: allowed are 'auto', 'latest', 'fresh' or the path of a checkpoint.")
    return restore


def default_parallelism() -> int:
    return max(1, min(MOST_SUBTASKS_BY_DEFAULT, len(os.sched_getaffinity(0))))


def _epoch_offset() -> float:
    return time.time() - time.monotonic()
