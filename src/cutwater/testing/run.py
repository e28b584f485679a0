"""``cw.testing.run``: a user's pipeline in this process, with scripted input and a clock that the script moves."""

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

import pyarrow as pa

from cutwater.arguments import takes_no_others
from cutwater.checkpoint.events import ManualTriggerRequested, RequestId
from cutwater.checkpoint.job_store import JobStore
from cutwater.checkpoint.memory_storage import MemoryStorage
from cutwater.checkpoint.statistics import CheckpointInfo
from cutwater.config import Checkpointing, memory_storage
from cutwater.connectors.collect import Collect
from cutwater.connectors.source import Source
from cutwater.environment import Environment
from cutwater.errors import ConfigError, CutwaterError, JobFailed
from cutwater.flow.ids import SubtaskId
from cutwater.operators.collect import CollectOperator
from cutwater.pipeline import checked_parallelism, to_graph
from cutwater.rows import rows_of
from cutwater.state.backend import StateBackend
from cutwater.subtask.failure import failed
from cutwater.testing.clock import ManualClock
from cutwater.testing.script import Advance, Checkpoint, Fail, Playback, Script, ScriptedSource, Trigger
from cutwater.testing.simulation import Action, Choose, Simulation, first

_NEVER = "3650 days"


@partial(takes_no_others, found="cw.testing.")
def run(
    pipeline: Callable[[Environment], Any],
    inputs: Mapping[str, Iterable[Any] | Script],
    *,
    parallelism: int = 1,
    environment: Environment | None = None,
    state_backend: StateBackend | None = None,
    choose: Choose = first,
) -> dict[str, list[Any]]:
    """Run ``pipeline(env)`` to the end of its input; the rows that each sink got, by its uid.

    ``inputs`` replaces sources by uid: a list of rows, or a ``script``. Sinks are replaced by lists; what a FAIL undoes is
    not in them, just as uncommitted output is not seen. Checkpoints are taken where the script says so, and at the end.
    A failure of the pipeline raises JobFailed, which says what a run on Spark would, from the error itself. ``state_backend``
    is for the environment that is made here; one that is given has its own.
    """
    width = checked_parallelism(parallelism)
    _check(inputs, environment, choose)
    if environment is None:
        env = Environment(parallelism=width, checkpointing=None, state_backend=state_backend)
    elif state_backend is None:
        env = environment
    else:
        raise ConfigError(
            "run() got environment and state_backend: give the environment the backend, and leave it out here."
        )
    _check_pipeline(pipeline, env)
    if env.checkpointing is None:
        env.checkpointing = Checkpointing(_NEVER, storage=memory_storage("1GB"))
    pipeline(env)
    with ExitStack() as stack:
        playbacks = _replace_sources(env, inputs, stack)
        names = _replace_sinks(env)
        definition = env.define("testing", env.parallelism or width)
        clock = ManualClock()
        simulation = _Run(definition, JobStore(MemoryStorage(1 << 30), "testing"), clock, choose)
        _play(simulation, playbacks, clock)
        simulation.end()
        store = simulation.store
        return {name: _rows(store.collected.read(uid)) for name, uid in names.items()}


def _check(inputs: object, environment: object, choose: object) -> None:
    if not isinstance(inputs, Mapping):
        raise ConfigError(
            f"inputs={inputs!r}: a dict is needed, from the uid of a source to its rows or a script(...)."
        )
    for uid, given in inputs.items():
        # A text or a dict can be gone through as well, but was meant as one row.
        if not isinstance(given, Script | Iterable) or isinstance(given, str | bytes | Mapping):
            raise ConfigError(f"inputs[{uid!r}]={given!r}: a list of rows or a script(...) is needed.")
    if environment is not None and not isinstance(environment, Environment):
        raise ConfigError(f"environment={environment!r}: pass cw.Environment(...) or None.")
    if not callable(choose):
        raise ConfigError(
            f"choose={choose!r}: a function is needed that takes the number of steps that could be next, and picks one."
        )


def _check_pipeline(pipeline: object, env: Environment) -> None:
    """Before it is called: a TypeError from inside it is the user's own to read."""
    try:
        fits = callable(pipeline) and inspect.signature(pipeline).bind(env) is not None
    except TypeError:
        fits = False
    except ValueError:  # something built in, which does not say what it takes; its classes make no pipelines
        fits = not isinstance(pipeline, type)
    if not fits:
        raise ConfigError(f"pipeline={pipeline!r}: a function is needed that takes one argument, a cw.Environment.")


class _Run(Simulation):
    """There is no restart but by FAIL: the first failure ends the run, told as on Spark."""

    def perform(self, action: Action) -> None:
        try:
            super().perform(action)
        except (Exception, SystemExit) as error:
            self._close_after(error)
            if action.kind in ("loop", "snapshot", "commit"):
                vertex, _, index = action.actor.removesuffix("]").rpartition("[")
                self._fail(SubtaskId(vertex, int(index)), error)
            if self.driver.failure is not None:
                raise JobFailed(self.driver.failure.message) from error
            raise

    def _deploy(self, subtask: SubtaskId, level: int, partition: int) -> None:
        try:
            super()._deploy(subtask, level, partition)
        except (Exception, SystemExit) as error:
            self._fail(subtask, error)

    def end(self) -> None:
        """The job has finished, and its processes end in order. After FAIL they do not."""
        for subtask, built in self.subtasks.items():
            try:
                built.close()
            except (Exception, SystemExit) as error:
                self._fail(subtask, error)

    def _close_after(self, error: BaseException) -> None:
        for subtask, built in self.subtasks.items():
            try:
                built.close()
            except (Exception, SystemExit) as another:
                error.add_note(f"Closing failed too: {failed(subtask, another).error}")

    def _fail(self, subtask: SubtaskId, error: BaseException) -> None:
        self._close_after(error)
        self.driver.on_message(subtask, failed(subtask, error))
        cause = self.driver.failure
        assert cause is not None, "a failed subtask fails its attempt"
        raise JobFailed("\n".join([cause.message, *getattr(error, "__notes__", ())])) from error


def _replace_sources(
    env: Environment, inputs: Mapping[str, Iterable[Any] | Script], stack: ExitStack
) -> list[Playback]:
    graph = to_graph(env.drafts, 1)
    sources = {
        node.uid: draft for node, draft in zip(graph.nodes, env.drafts, strict=True) if isinstance(draft.body, Source)
    }
    unknown = set(inputs) - set(sources)
    if unknown:
        raise ConfigError(f"inputs name {sorted(unknown, key=str)}, but the pipeline's sources are {sorted(sources)}.")
    endless = [
        uid
        for uid, draft in sources.items()
        if uid not in inputs and isinstance(draft.body, Source) and not draft.body.bounded
    ]
    if endless:
        raise ConfigError(f"The source {endless[0]!r} never ends, so the run would not either: name it in inputs.")
    playbacks = []
    for uid, given in inputs.items():
        draft = sources[uid]
        playback = Playback(given.items if isinstance(given, Script) else list(given))
        stack.callback(playback.close)
        draft.body = ScriptedSource(draft.schema, playback)
        playbacks.append(playback)
    return playbacks


def _replace_sinks(env: Environment) -> dict[str, str]:
    """From the name of a list of the result to the uid of its sink: ``collect`` by its name, if no uid is the same."""
    graph = to_graph(env.drafts, 1)
    sinks = [(node.uid, draft) for node, draft in zip(graph.nodes, env.drafts, strict=True) if draft.sink is not None]
    uids = {uid for uid, _ in sinks}
    names: dict[str, str] = {}
    for uid, draft in sinks:
        name = draft.sink.name if isinstance(draft.sink, Collect) else uid
        draft.sink = Collect(uid)
        draft.body = CollectOperator(draft.schema)
        draft.uid = uid
        names[uid if name in uids else name] = uid
    return names


def _play(simulation: Simulation, playbacks: Sequence[Playback], clock: ManualClock) -> None:
    """Run until nothing moves; then the first mark that a source waits at happens, and so on to the end."""
    requests = 0
    while True:
        simulation.run_until_idle()
        if simulation.finished:
            return
        waiting = next((playback for playback in playbacks if playback.mark is not None), None)
        match waiting.mark if waiting is not None else None:
            case None:
                if not simulation.advance_to_next_timer():
                    raise CutwaterError("The pipeline stands still: no source has more input, and nothing is due.")
            case Checkpoint():
                requests += 1
                _take_checkpoint(simulation, RequestId(requests))
                _pass(waiting)
            case Trigger():
                requests += 1
                _pass(waiting)
                simulation.driver.handle(ManualTriggerRequested(RequestId(requests)))
            case Fail():
                _pass(waiting)
                simulation.crash()
            case Advance(by):
                clock.advance(by.total_seconds())
                # What became due happens before more input comes, or the end of input.
                simulation.run_until_idle()
                _pass(waiting)


def _take_checkpoint(simulation: Simulation, request: RequestId) -> None:
    simulation.driver.handle(ManualTriggerRequested(request))
    simulation.run_until_idle()
    answer = simulation.answers.get(request)
    if not isinstance(answer, CheckpointInfo):
        raise CutwaterError(f"CHECKPOINT did not complete: {answer or 'nothing moves any more'}")


def _pass(playback: Playback | None) -> None:
    assert playback is not None
    playback.pass_mark()


def _rows(parts: Sequence[bytes]) -> list[Any]:
    rows: list[Any] = []
    for part in parts:
        with pa.ipc.open_stream(pa.BufferReader(pa.py_buffer(part))) as reader:
            for batch in reader:
                rows.extend(rows_of(batch))
    return rows
