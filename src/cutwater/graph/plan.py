"""The execution plan: chains laid out on levels, and the channels between their subtasks.

A level is one Spark stage; a partition of it is one subtask or one relay. Level k+1 reads level k only, so that any DAG
becomes a straight line of stages.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from cutwater.flow.ids import ChannelId, SubtaskId
from cutwater.graph.chaining import Vertex, VertexEdge, chain
from cutwater.graph.event_times import edges_that_tell_time
from cutwater.graph.logical import Exchange, LogicalGraph


@dataclass(frozen=True, slots=True)
class SubtaskPlace:
    """This partition runs a subtask."""

    subtask: SubtaskId


@dataclass(frozen=True, slots=True)
class RelayPlace:
    """This partition passes one sender's rows of an edge on to the next level: part of the channel, nothing more."""

    edge: int
    sender: int


Place = SubtaskPlace | RelayPlace


@dataclass(frozen=True, slots=True)
class InputChannel:
    channel: ChannelId
    sender: SubtaskId
    target: str
    """Uid of the operator that reads it, the head of the receiving chain."""
    port: int
    edge: int
    key: tuple[str, ...]
    tells_time: bool = True
    """Whether its watermarks count: not where it has no event time and another input has."""


@dataclass(frozen=True, slots=True)
class OutputRoute:
    """One outgoing edge of one subtask: ``channels[j]`` leads to subtask j of the target and leaves through partition ``hops[j]``.

    A forward edge has exactly one channel.
    """

    edge: int
    source: str
    tag: str | None
    exchange: Exchange
    key: tuple[str, ...]
    channels: tuple[ChannelId, ...]
    hops: tuple[int, ...]


@dataclass(frozen=True)
class ExecutionPlan:
    graph: LogicalGraph
    max_parallelism: int
    vertices: tuple[Vertex, ...]
    edges: tuple[VertexEdge, ...]
    level_of: Mapping[str, int]
    levels: tuple[tuple[Place, ...], ...]

    @property
    def slots_needed(self) -> int:
        return sum(len(level) for level in self.levels)

    @cached_property
    def subtasks(self) -> tuple[SubtaskId, ...]:
        return tuple(place.subtask for level in self.levels for place in level if isinstance(place, SubtaskPlace))

    @cached_property
    def source_subtasks(self) -> frozenset[SubtaskId]:
        heads = {vertex.id for vertex in self.vertices if vertex.is_source}
        return frozenset(subtask for subtask in self.subtasks if subtask.vertex in heads)

    def vertex(self, vertex_id: str) -> Vertex:
        return next(vertex for vertex in self.vertices if vertex.id == vertex_id)

    @cached_property
    def _channel_base(self) -> tuple[int, ...]:
        bases, following = [], 0
        for edge in self.edges:
            bases.append(following)
            following += self.vertex(edge.source_vertex).parallelism * self.vertex(edge.target_vertex).parallelism
        return tuple(bases)

    def _channel(self, edge: int, sender: int, receiver: int) -> ChannelId:
        width = self.vertex(self.edges[edge].target_vertex).parallelism
        return ChannelId(self._channel_base[edge] + sender * width + receiver)

    @cached_property
    def _telling_time(self) -> frozenset[int]:
        return edges_that_tell_time(self.graph, self.edges)

    @cached_property
    def _partition(self) -> dict[tuple[int, Place], int]:
        return {(number, place): index for number, level in enumerate(self.levels) for index, place in enumerate(level)}

    def _receivers(self, edge: int, sender: int) -> Sequence[int]:
        described = self.edges[edge]
        if described.exchange is Exchange.FORWARD:
            return (sender,)
        return range(self.vertex(described.target_vertex).parallelism)

    def _hop(self, edge: int, sender: int, receiver: int, from_level: int) -> int:
        """The partition of the next level that a row of this channel goes to."""
        target = self.edges[edge].target_vertex
        following = from_level + 1
        if self.level_of[target] == following:
            return self._partition[following, SubtaskPlace(SubtaskId(target, receiver))]
        return self._partition[following, RelayPlace(edge, sender)]

    def input_channels(self, subtask: SubtaskId) -> tuple[InputChannel, ...]:
        channels = []
        for number, edge in enumerate(self.edges):
            if edge.target_vertex != subtask.vertex:
                continue
            for sender in range(self.vertex(edge.source_vertex).parallelism):
                if subtask.index in self._receivers(number, sender):
                    channel = self._channel(number, sender, subtask.index)
                    origin = SubtaskId(edge.source_vertex, sender)
                    tells_time = number in self._telling_time
                    channels.append(InputChannel(channel, origin, edge.target, edge.port, number, edge.key, tells_time))
        return tuple(channels)

    def output_routes(self, subtask: SubtaskId) -> tuple[OutputRoute, ...]:
        level = self.level_of[subtask.vertex]
        routes = []
        for number, edge in enumerate(self.edges):
            if edge.source_vertex != subtask.vertex:
                continue
            receivers = self._receivers(number, subtask.index)
            routes.append(
                OutputRoute(
                    edge=number,
                    source=edge.source,
                    tag=edge.tag,
                    exchange=edge.exchange,
                    key=edge.key,
                    channels=tuple(self._channel(number, subtask.index, receiver) for receiver in receivers),
                    hops=tuple(self._hop(number, subtask.index, receiver, level) for receiver in receivers),
                )
            )
        return tuple(routes)

    def relay_hops(self, level: int, relay: RelayPlace) -> dict[ChannelId, int]:
        return {
            self._channel(relay.edge, relay.sender, receiver): self._hop(relay.edge, relay.sender, receiver, level)
            for receiver in self._receivers(relay.edge, relay.sender)
        }

    @cached_property
    def sender_of(self) -> dict[ChannelId, SubtaskId]:
        return {
            self._channel(number, sender, receiver): SubtaskId(edge.source_vertex, sender)
            for number, edge in enumerate(self.edges)
            for sender in range(self.vertex(edge.source_vertex).parallelism)
            for receiver in self._receivers(number, sender)
        }


def make_plan(graph: LogicalGraph, max_parallelism: int) -> ExecutionPlan:
    vertices, edges = chain(graph.with_forward_only_between_equals())
    level_of = _layer(vertices, edges)
    depth = 1 + max(level_of.values())
    levels: list[list[Place]] = [[] for _ in range(depth)]
    for vertex in vertices:
        levels[level_of[vertex.id]].extend(
            SubtaskPlace(SubtaskId(vertex.id, index)) for index in range(vertex.parallelism)
        )
    parallelism = {vertex.id: vertex.parallelism for vertex in vertices}
    for number, edge in enumerate(edges):
        for level in range(level_of[edge.source_vertex] + 1, level_of[edge.target_vertex]):
            levels[level].extend(RelayPlace(number, sender) for sender in range(parallelism[edge.source_vertex]))
    return ExecutionPlan(
        graph=graph,
        max_parallelism=max_parallelism,
        vertices=vertices,
        edges=edges,
        level_of=level_of,
        levels=tuple(tuple(level) for level in levels),
    )


def _layer(vertices: Sequence[Vertex], edges: Sequence[VertexEdge]) -> dict[str, int]:
    """Each vertex one level below its lowest input; sources as late as their readers allow, so that most relays vanish."""
    level: dict[str, int] = {}
    for vertex in vertices:
        inputs = [level[edge.source_vertex] for edge in edges if edge.target_vertex == vertex.id]
        level[vertex.id] = 1 + max(inputs) if inputs else 0
    for vertex in vertices:
        readers = [level[edge.target_vertex] for edge in edges if edge.source_vertex == vertex.id]
        if vertex.is_source and readers:
            level[vertex.id] = min(readers) - 1
    return level
