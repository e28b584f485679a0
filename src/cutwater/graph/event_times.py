"""Which inputs have event time. Where some have and others have none, only those that have decide how far time has come."""

from collections.abc import Sequence

from cutwater.graph.chaining import VertexEdge
from cutwater.graph.logical import LogicalGraph


def with_times(graph: LogicalGraph) -> frozenset[str]:
    """The nodes whose output has watermarks: event time begins there, or somewhere on a way that leads there."""
    timed: set[str] = set()
    for node in graph.nodes:
        if node.begins_time or any(edge.source in timed for edge in graph.inputs(node.uid)):
            timed.add(node.uid)
    return frozenset(timed)


def edges_that_tell_time(graph: LogicalGraph, edges: Sequence[VertexEdge]) -> frozenset[int]:
    """The numbers of the edges whose watermarks their receiver goes by.

    An edge without times would hold its receiver back until it ends, for times that it never has. Where no input has any,
    all are waited for: their end is the end of time.
    """
    timed = with_times(graph)
    receivers_with_time = {edge.target_vertex for edge in edges if edge.source in timed}
    return frozenset(
        number
        for number, edge in enumerate(edges)
        if edge.source in timed or edge.target_vertex not in receivers_with_time
    )
