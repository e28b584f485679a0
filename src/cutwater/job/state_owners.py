"""What each node of a job keeps its state as, so that a checkpoint is never read by something that would not understand it."""

from collections.abc import Mapping

from cutwater.aggregates import AggregateSpec
from cutwater.checkpoint.completed import StateOwner
from cutwater.checkpoint.fit import DeclaredStates
from cutwater.connectors.file_sink import FileSink
from cutwater.connectors.sink import Sink, TwoPhaseCommitSink
from cutwater.connectors.source import Source
from cutwater.graph.logical import Node
from cutwater.operators.aggregate import Aggregate
from cutwater.operators.collect import CollectOperator
from cutwater.operators.join import EquiJoin
from cutwater.operators.keyed_process import KeyedProcessOperator, KeyedReduce
from cutwater.operators.session_windows import SessionWindows
from cutwater.operators.sink_operator import SinkOperator
from cutwater.operators.window_aggregate import WindowAggregate
from cutwater.operators.window_function import WindowRows


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
            told = f"agg({_results(aggregate.results)})"
            return StateOwner(told, told)
        case WindowAggregate() as window:
            told = f"{window.describe()}.agg({_results(window.results)})"
            return StateOwner(told, told)
        case WindowRows() | SessionWindows() as window:
            return StateOwner(window.describe(), window.describe())
        case EquiJoin() as join:
            return StateOwner(join.describe(), join.describe())
        case KeyedReduce():
            return StateOwner("reduce", "reduce")
        case KeyedProcessOperator():
            return StateOwner("process", "process")
        case _:
            return StateOwner("stateless", f"{node.name}, which keeps no state")


def _results(results: Mapping[str, AggregateSpec]) -> str:
    """Of columns that may be renamed, but a count never goes on as a sum."""
    return ", ".join(sorted(f"{name}={spec.kind}" for name, spec in results.items()))


def declared_by(node: Node) -> DeclaredStates | None:
    """None: its states have names that its kind decides."""
    match node.body:
        case KeyedProcessOperator() as process:
            return DeclaredStates(type(process.fn).__name__, process.state_names())
        case _:
            return None


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
