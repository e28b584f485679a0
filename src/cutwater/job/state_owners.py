"""What each node of a job keeps its state as, so that a checkpoint is never read by something that would not understand it."""

from cutwater.aggregates import described
from cutwater.checkpoint.completed import StateOwner
from cutwater.checkpoint.fit import DeclaredStates, SubtaskState
from cutwater.connectors.file_sink import FileSink
from cutwater.connectors.sink import Sink, TwoPhaseCommitSink
from cutwater.connectors.source import Source
from cutwater.functions import Function
from cutwater.graph.logical import Node
from cutwater.operators.aggregate import Aggregate
from cutwater.operators.collect import CollectOperator
from cutwater.operators.grid_windows import GridWindows
from cutwater.operators.join import EquiJoin
from cutwater.operators.kept_aggregate import KeptAggregate
from cutwater.operators.kept_contents import Processed
from cutwater.operators.keyed_process import KeyedProcessOperator, KeyedReduce
from cutwater.operators.process import ContextFunction
from cutwater.operators.session_windows import TABLE as SESSIONS
from cutwater.operators.session_windows import SessionWindows
from cutwater.operators.sink_operator import SinkOperator
from cutwater.operators.window_aggregate import WindowAggregate
from cutwater.operators.window_function import WindowProcessOperator
from cutwater.operators.window_rows import TABLE as WINDOW_ROWS
from cutwater.state.operator_states import declared_operator_states


def owner_of(node: Node) -> StateOwner:
    """Classes of the user are all of one kind: they may be renamed, and only they know what they can read."""
    match node.body:
        case Source() as source:
            return StateOwner("own source" if _is_own(source) else _word(source), _description(source))
        case SinkOperator(sink=sink):
            return StateOwner(_kind_of_sink(sink), _description(sink))
        case CollectOperator():
            return StateOwner("collect", "collect")
        case Aggregate() as aggregate:
            told = f"agg({described(aggregate.results)})"
            return StateOwner(told, told)
        case WindowAggregate() as window:
            told = f"{window.describe()}.agg({described(window.results)})"
            return StateOwner(told, told)
        case GridWindows() | SessionWindows() | KeptAggregate() as kept:
            return StateOwner(kept.describe(), kept.describe())
        case EquiJoin() as join:
            return StateOwner(join.describe(), join.describe())
        case KeyedReduce():
            return StateOwner("reduce", "reduce")
        case ContextFunction():
            return StateOwner("process", "process")
        case _:
            return StateOwner("stateless", f"{node.name}, which keeps no state")


def declared_by(node: Node) -> DeclaredStates | None:
    """None: its states have names that its kind decides."""
    match node.body:
        case KeyedProcessOperator() as process:
            return _declared(process.fn, process.state_names())
        case ContextFunction() as process:
            return _declared(process.fn)
        case WindowProcessOperator() as process:
            return _declared(process.fn, given=WINDOW_ROWS)
        case SessionWindows(content=Processed() as process):
            return _declared(process.fn, given=SESSIONS)
        case _:
            return None


def _declared(fn: Function, names: frozenset[str] = frozenset(), given: str | None = None) -> DeclaredStates:
    states = declared_operator_states(type(fn))
    return DeclaredStates(
        type(fn).__name__,
        names,
        frozenset(SubtaskState(state.inline_key, name) for name, state in states.items()),
        frozenset() if given is None else frozenset((given,)),
    )


def _kind_of_sink(sink: Sink) -> str:
    match sink:
        case FileSink():
            return "file sink"
        case TwoPhaseCommitSink():
            return "own sink" if _is_own(sink) else _word(sink)
        case _:
            return "plain sink"


def _is_own(part: Source | Sink) -> bool:
    return not type(part).__module__.startswith("cutwater.")


def _description(part: Source | Sink) -> str:
    return type(part).__name__ if _is_own(part) else part.describe()


def _word(part: Source | Sink) -> str:
    return part.describe().partition("(")[0]
