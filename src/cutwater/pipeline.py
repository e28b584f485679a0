"""The pipeline while it is being written: drafts of nodes that become a LogicalGraph when the job starts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from cutwater.connectors.collect import Collect
from cutwater.connectors.sink import Sink
from cutwater.connectors.source import Source
from cutwater.errors import ConfigError, PlanError
from cutwater.flow.event_time import EventTime
from cutwater.graph.logical import Edge, Exchange, LogicalGraph, Node, NodeKind, derived_uid, first_free
from cutwater.operators.operator import Operator


@dataclass(frozen=True, slots=True)
class Upstream:
    """One input of a stream or an operator: which draft, which of its outputs, and how records travel."""

    draft: "Draft"
    tag: str | None = None
    exchange: Exchange = Exchange.FORWARD
    key: tuple[str, ...] = ()
    port: int = 0


@dataclass(eq=False, slots=True)
class Draft:
    """A node that can still get a uid, a name and a parallelism."""

    name: str
    kind: NodeKind
    body: Source | Operator
    inputs: tuple[Upstream, ...]
    schema: pa.Schema
    side_schemas: Mapping[str, pa.Schema] = field(default_factory=dict)
    side_times: Mapping[str, EventTime] = field(default_factory=dict)
    """Of the side outputs whose records say when they happened."""
    uid: str | None = None
    parallelism: int | None = None
    sink: Sink | None = None
    follows: "Draft | None" = None
    """A helper of another node (a combiner): takes its parallelism from its own input, its uid from that node."""


def checked_uid(uid: object, argument: str = "uid") -> str:
    if not isinstance(uid, str) or not uid or len(uid) > 200 or not uid.isprintable() or "/" in uid:
        raise ConfigError(
            f"{argument}={uid!r}: a non-empty string of at most 200 printable characters without '/' is needed."
        )
    return uid


def checked_parallelism(parallelism: object, argument: str = "parallelism") -> int:
    if isinstance(parallelism, bool) or not isinstance(parallelism, int) or parallelism < 1:
        raise ConfigError(f"{argument}={parallelism!r}: a whole number of at least 1 is needed.")
    return parallelism


def to_graph(drafts: Sequence[Draft], parallelism: int) -> LogicalGraph:
    """The graph with every uid and parallelism settled; ``parallelism`` is for nodes that have none of their own."""
    if not drafts:
        raise PlanError("The pipeline is empty: begin with env.read(source) and end with .write(sink).")
    _refuse_shared_uids(drafts)
    uids: dict[Draft, str] = {}
    widths: dict[Draft, int] = {}
    nodes: list[Node] = []
    edges: list[Edge] = []
    written = {draft.uid for draft in drafts if draft.uid is not None}
    sides_read = {(up.draft, up.tag) for draft in drafts for up in draft.inputs if up.tag is not None}
    for draft in drafts:
        inputs = [(uids[up.draft], up.exchange, up.tag) for up in draft.inputs]
        if draft.follows is not None and draft.follows.uid is not None:
            # One for each stream of a union.
            uid = first_free(f"{draft.follows.uid}-{draft.name}", written | set(uids.values()))
        else:
            uid = draft.uid or derived_uid(draft.name, inputs, written | set(uids.values()))
        width = draft.parallelism or (widths[draft.inputs[0].draft] if draft.follows is not None else parallelism)
        uids[draft], widths[draft] = uid, width
        if draft.follows is not None and isinstance(draft.body, Operator):
            draft.body.sides_read = frozenset(tag for whole, tag in sides_read if whole is draft.follows)
        nodes.append(
            Node(
                uid,
                draft.name,
                draft.kind,
                width,
                draft.body,
                user_uid=draft.uid is not None,
                begins_time=isinstance(draft.body, Operator) and draft.body.begins_time,
            )
        )
        edges.extend(Edge(uids[up.draft], uid, up.port, up.exchange, up.key, up.tag) for up in draft.inputs)
    served = (None if draft.follows is None else uids[draft.follows] for draft in drafts)
    nodes = [replace(node, serves=uid) for node, uid in zip(nodes, served, strict=True)]
    graph = LogicalGraph(tuple(nodes), tuple(edges))
    _refuse_open_ends(graph)
    return graph


def _refuse_shared_uids(drafts: Sequence[Draft]) -> None:
    """Of those that the user wrote, or that follow from a name which the user wrote; derived ones are always free."""
    seen: dict[str, Draft] = {}
    for draft in drafts:
        if draft.uid is None:
            continue
        other = seen.setdefault(draft.uid, draft)
        if other is draft:
            continue
        collects = [each.sink.name for each in (other, draft) if isinstance(each.sink, Collect)]
        match collects:
            case [name, _]:
                raise PlanError(
                    f"collect({name!r}) is written twice, so that result.rows({name!r}) could mean either. Give each its own "
                    f"name, or union the streams before: a.union(b).collect({name!r})."
                )
            case [name]:
                raise PlanError(
                    f"uid={draft.uid!r} is what collect({name!r}) goes by. Give the other operator another uid, or the collected "
                    f"rows another name."
                )
            case _:
                raise PlanError(
                    f"The uid {draft.uid!r} is used by two operators, {other.name!r} and {draft.name!r}. State is found by uid: "
                    f"give each operator its own."
                )


def _refuse_open_ends(graph: LogicalGraph) -> None:
    if not any(node.kind is NodeKind.SINK for node in graph.nodes):
        raise PlanError("The pipeline has no sink: end it with .write(sink), .collect(name) or .print().")
    read = {edge.source for edge in graph.edges}
    for node in graph.nodes:
        if node.kind is not NodeKind.SINK and node.uid not in read:
            raise PlanError(
                f"Nothing reads the output of {node.name!r} (uid {node.uid!r}): write it somewhere (cw.discard() will do)."
            )
