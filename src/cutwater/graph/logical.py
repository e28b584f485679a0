"""The logical graph: nodes with a stable uid and a parallelism, edges that say how records travel."""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from cutwater.errors import PlanError


class NodeKind(Enum):
    SOURCE = "source"
    OPERATOR = "operator"
    SINK = "sink"


class Exchange(Enum):
    """How records of an edge find their receiving subtask."""

    FORWARD = "forward"
    KEY_GROUP = "key group"
    REBALANCE = "rebalance"
    BROADCAST = "broadcast"


@dataclass(frozen=True, slots=True)
class Node:
    """``body`` is a Source or an Operator; the graph does not look into it."""

    uid: str
    name: str
    kind: NodeKind
    parallelism: int
    body: object
    user_uid: bool = False
    """Whether the user chose the uid; a derived one changes when the topology before it changes."""
    begins_time: bool = False
    """Whether event time begins here: what comes out has watermarks, whatever came in."""
    serves: str | None = None
    """The uid of the operator that it is a part of, if the user wrote that one and not this."""

    @property
    def told_as(self) -> str:
        """The uid that messages name."""
        return self.serves or self.uid


@dataclass(frozen=True, slots=True)
class Edge:
    """``tag`` is the side output it reads (None: the main one); ``port`` the input of the target."""

    source: str
    target: str
    port: int = 0
    exchange: Exchange = Exchange.FORWARD
    key: tuple[str, ...] = ()
    tag: str | None = None


@dataclass(frozen=True, slots=True)
class LogicalGraph:
    """Nodes in topological order (inputs before their readers)."""

    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]

    def __post_init__(self) -> None:
        seen: set[str] = set()
        for node in self.nodes:
            if node.uid in seen:
                raise PlanError(
                    f"The uid {node.uid!r} is used by two operators. State is found by uid: give each operator its own."
                )
            seen.add(node.uid)

    def node(self, uid: str) -> Node:
        return next(node for node in self.nodes if node.uid == uid)

    def inputs(self, uid: str) -> tuple[Edge, ...]:
        return tuple(edge for edge in self.edges if edge.target == uid)

    def outputs(self, uid: str) -> tuple[Edge, ...]:
        return tuple(edge for edge in self.edges if edge.source == uid)

    def with_forward_only_between_equals(self) -> "LogicalGraph":
        """A forward edge between different parallelisms has no partner for every subtask: it rebalances."""
        parallelism = {node.uid: node.parallelism for node in self.nodes}
        return LogicalGraph(
            self.nodes,
            tuple(
                replace(edge, exchange=Exchange.REBALANCE)
                if edge.exchange is Exchange.FORWARD and parallelism[edge.source] != parallelism[edge.target]
                else edge
                for edge in self.edges
            ),
        )


def derived_uid(name: str, inputs: Sequence[tuple[str, Exchange, str | None]], taken: Iterable[str]) -> str:
    """A uid made of the topology before a node, so that an unchanged program finds its state again."""
    told = "|".join([name, *(f"{uid}:{exchange.value}:{tag}" for uid, exchange, tag in inputs)])
    return first_free(f"{name}-{hashlib.sha256(told.encode()).hexdigest()[:8]}", taken)


def first_free(base: str, taken: Iterable[str]) -> str:
    """``base``, or ``base-2`` and so on."""
    used = set(taken)
    if base not in used:
        return base
    ordinal = 2
    while f"{base}-{ordinal}" in used:
        ordinal += 1
    return f"{base}-{ordinal}"
