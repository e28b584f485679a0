"""What a path from source to sink guarantees: that of its weakest part."""

from collections.abc import Iterator
from dataclasses import dataclass

from cutwater.config import Checkpointing, CheckpointMode
from cutwater.connectors.sink import Delivery, Sink, TwoPhaseCommitSink
from cutwater.connectors.source import Source
from cutwater.errors import ConfigError
from cutwater.graph.logical import LogicalGraph, NodeKind
from cutwater.operators.operator import Operator


@dataclass(frozen=True, slots=True)
class PathGuarantee:
    source: str
    sink: str
    guarantee: str
    reason: str
    by_clock: tuple[str, ...] = ()
    """The operators on it whose results go by the clock: read again, the same records may give others."""

    def __str__(self) -> str:
        if not self.by_clock:
            return f"{self.guarantee} ({self.reason})"
        which = f"{', '.join(self.by_clock)} {'goes' if len(self.by_clock) == 1 else 'go'} by the clock"
        return (
            f"{self.guarantee}, not reproducible ({self.reason}; {which}, so that records which are read again after a failure "
            f"may give other results)"
        )


def path_guarantee(source: Source, sink: Sink, checkpointing: Checkpointing | None) -> tuple[str, str]:
    """The guarantee and the part that decides it."""
    if checkpointing is None:
        return "none", "there are no checkpoints: after a failure the job starts over, without its state"
    if checkpointing.mode is CheckpointMode.AT_MOST_ONCE:
        return "at most once", "mode='at_most_once'"
    if not source.replayable:
        return "at most once", f"{source.describe()} cannot be read again"
    if checkpointing.mode is CheckpointMode.AT_LEAST_ONCE:
        return "at least once", "mode='at_least_once'"
    if sink.delivery is Delivery.AT_LEAST_ONCE:
        return "at least once", f"{sink.describe()} writes at once and may repeat after a failure"
    return "exactly once", "replayable source, aligned state, output bound to checkpoints"


def path_guarantees(
    graph: LogicalGraph, sources: dict[str, Source], sinks: dict[str, Sink], checkpointing: Checkpointing | None
) -> Iterator[PathGuarantee]:
    reached: dict[str, dict[str, set[str]]] = {}
    """Of each node: the sources that it gets records of, and for each what goes by the clock on the way."""
    for node in graph.nodes:
        found = reached[node.uid] = {node.uid: set()} if node.kind is NodeKind.SOURCE else {}
        own = {node.uid} if isinstance(node.body, Operator) and node.body.by_clock else set()
        for edge in graph.inputs(node.uid):
            for uid, before in reached[edge.source].items():
                found.setdefault(uid, set()).update(before, own)
    for node in graph.nodes:
        if node.kind is NodeKind.SINK:
            for uid, by_clock in sorted(reached[node.uid].items()):
                guarantee, reason = path_guarantee(sources[uid], sinks[node.uid], checkpointing)
                yield PathGuarantee(uid, node.uid, guarantee, reason, tuple(sorted(by_clock)))


def refuse_broken_promises(
    sources: dict[str, Source], sinks: dict[str, Sink], checkpointing: Checkpointing | None
) -> None:
    """Before anything starts: a promise that cannot be kept is refused, not lowered in silence."""
    if checkpointing is None:
        for uid, sink in sinks.items():
            if isinstance(sink, TwoPhaseCommitSink):
                raise ConfigError(
                    f"{sink.describe()} (uid {uid!r}) commits its output with checkpoints, and this environment takes none. "
                    f"Set checkpointing=cw.Checkpointing(interval='10s', storage='file:checkpoints')."
                )
        return
    if checkpointing.mode is CheckpointMode.EXACTLY_ONCE:
        for uid, source in sources.items():
            if not source.replayable and not getattr(source, "allow_data_loss", False):
                raise ConfigError(
                    f"{source.describe()} (uid {uid!r}) cannot be read again after a failure, so exactly once cannot be kept. "
                    f"Accept the loss with allow_data_loss=True, or use mode='at_most_once'."
                )
