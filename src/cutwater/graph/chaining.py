"""Chaining: operators joined by forward edges of equal parallelism run in one subtask, without an exchange."""

from dataclasses import dataclass

from cutwater.graph.logical import Edge, Exchange, LogicalGraph, Node, NodeKind


@dataclass(frozen=True, slots=True)
class Vertex:
    """A chain: a tree of operators under its head. ``links`` are the edges inside it."""

    id: str
    members: tuple[Node, ...]
    links: tuple[Edge, ...]

    @property
    def head(self) -> Node:
        return self.members[0]

    @property
    def parallelism(self) -> int:
        return self.head.parallelism

    @property
    def is_source(self) -> bool:
        return self.head.kind is NodeKind.SOURCE

    @property
    def has_sink(self) -> bool:
        return any(node.kind is NodeKind.SINK for node in self.members)


@dataclass(frozen=True, slots=True)
class VertexEdge:
    """An edge between two chains; ``source`` and ``target`` are the operators at its ends."""

    source_vertex: str
    target_vertex: str
    source: str
    target: str
    port: int
    exchange: Exchange
    key: tuple[str, ...]
    tag: str | None


def chain(graph: LogicalGraph) -> tuple[tuple[Vertex, ...], tuple[VertexEdge, ...]]:
    """The chains in topological order, and the edges between them."""
    head_of: dict[str, str] = {}
    links: dict[str, list[Edge]] = {}
    members: dict[str, list[Node]] = {}
    for node in graph.nodes:
        inputs = graph.inputs(node.uid)
        fused = len(inputs) == 1 and _fusible(graph, node, inputs[0])
        head = head_of[inputs[0].source] if fused else node.uid
        head_of[node.uid] = head
        members.setdefault(head, []).append(node)
        links.setdefault(head, []).extend(inputs if fused else ())
    vertices = tuple(Vertex(head, tuple(nodes), tuple(links[head])) for head, nodes in members.items())
    inner = {edge for vertex in vertices for edge in vertex.links}
    edges = tuple(
        VertexEdge(
            head_of[edge.source], head_of[edge.target], edge.source, edge.target,
            edge.port, edge.exchange, edge.key, edge.tag,
        )
        for edge in graph.edges
        if edge not in inner
    )  # fmt: skip
    return vertices, edges


def _fusible(graph: LogicalGraph, node: Node, edge: Edge) -> bool:
    return edge.exchange is Exchange.FORWARD and graph.node(edge.source).parallelism == node.parallelism
