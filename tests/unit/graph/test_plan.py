"""From a logical graph to subtasks, relays and channels."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutwater.errors import PlanError
from cutwater.flow.ids import ChannelId, SubtaskId
from cutwater.graph.chaining import chain
from cutwater.graph.logical import Edge, Exchange, LogicalGraph, Node, NodeKind, derived_uid
from cutwater.graph.plan import ExecutionPlan, RelayPlace, SubtaskPlace, make_plan

FORWARD, KEYED = Exchange.FORWARD, Exchange.KEY_GROUP


def source(uid: str, parallelism: int = 2) -> Node:
    return Node(uid, uid, NodeKind.SOURCE, parallelism, None)


def operator(uid: str, parallelism: int = 2) -> Node:
    return Node(uid, uid, NodeKind.OPERATOR, parallelism, None)


def sink(uid: str, parallelism: int = 2) -> Node:
    return Node(uid, uid, NodeKind.SINK, parallelism, None)


def graph(nodes: list[Node], *edges: tuple[str, str, Exchange]) -> LogicalGraph:
    return LogicalGraph(tuple(nodes), tuple(Edge(a, b, exchange=exchange) for a, b, exchange in edges))


# --- uids -----------------------------------------------------------------------------------------------------------------


def test_a_derived_uid_depends_on_the_topology_before_it_and_on_nothing_else() -> None:
    first = derived_uid("map", [("a", FORWARD, None)], ())
    assert first == derived_uid("map", [("a", FORWARD, None)], {"something else"})
    assert first != derived_uid("map", [("b", FORWARD, None)], ())
    assert first != derived_uid("map", [("a", KEYED, None)], ())
    assert first != derived_uid("map", [("a", FORWARD, "late")], ())
    assert first != derived_uid("filter", [("a", FORWARD, None)], ())


def test_twins_get_numbered_uids() -> None:
    first = derived_uid("map", [("a", FORWARD, None)], ())
    second = derived_uid("map", [("a", FORWARD, None)], {first})
    third = derived_uid("map", [("a", FORWARD, None)], {first, second})
    assert (second, third) == (f"{first}-2", f"{first}-3")


def test_one_uid_for_two_operators_is_refused() -> None:
    with pytest.raises(PlanError, match="'twice'"):
        graph([source("twice"), sink("twice")])


# --- chains ---------------------------------------------------------------------------------------------------------------


def test_forward_edges_between_equals_become_one_chain() -> None:
    vertices, edges = chain(graph([source("a"), operator("m"), sink("s")], ("a", "m", FORWARD), ("m", "s", FORWARD)))
    assert [[node.uid for node in vertex.members] for vertex in vertices] == [["a", "m", "s"]]
    assert vertices[0].is_source and vertices[0].has_sink
    assert edges == ()


def test_a_chain_may_branch() -> None:
    vertices, edges = chain(graph([source("a"), sink("s"), sink("t")], ("a", "s", FORWARD), ("a", "t", FORWARD)))
    assert [[node.uid for node in vertex.members] for vertex in vertices] == [["a", "s", "t"]]
    assert edges == ()


def test_keyed_edges_different_parallelism_and_several_inputs_break_a_chain() -> None:
    keyed, _ = chain(graph([source("a"), sink("s")], ("a", "s", KEYED)))
    assert len(keyed) == 2
    narrow = graph([source("a", 3), sink("s", 2)], ("a", "s", FORWARD)).with_forward_only_between_equals()
    assert narrow.edges[0].exchange is Exchange.REBALANCE
    assert len(chain(narrow)[0]) == 2
    union, edges = chain(graph([source("a"), source("b"), sink("s")], ("a", "s", FORWARD), ("b", "s", FORWARD)))
    assert len(union) == 3 and len(edges) == 2


# --- levels ---------------------------------------------------------------------------------------------------------------


def test_sources_stand_as_late_as_their_readers_allow() -> None:
    """a -> m -> s and b -> s: b needs no relay when it stands beside m."""
    plan = make_plan(
        graph(
            [source("a"), source("b"), operator("m"), sink("s")],
            ("a", "m", KEYED),
            ("m", "s", KEYED),
            ("b", "s", KEYED),
        ),
        128,
    )
    assert plan.level_of == {"a": 0, "b": 1, "m": 1, "s": 2}
    assert not any(isinstance(place, RelayPlace) for level in plan.levels for place in level)
    assert plan.slots_needed == 8


def test_an_edge_that_skips_a_level_gets_one_relay_per_sender() -> None:
    plan = make_plan(
        graph(
            [source("a", 2), operator("m", 3), sink("s", 2)], ("a", "m", KEYED), ("m", "s", KEYED), ("a", "s", KEYED)
        ),
        128,
    )
    relays = [place for place in plan.levels[1] if isinstance(place, RelayPlace)]
    assert relays == [RelayPlace(2, 0), RelayPlace(2, 1)]
    assert plan.slots_needed == 2 + (3 + 2) + 2


def test_a_forward_edge_that_is_not_chained_has_one_channel_per_pair() -> None:
    plan = make_plan(graph([source("a"), source("b"), sink("s")], ("a", "s", FORWARD), ("b", "s", FORWARD)), 128)
    assert [len(plan.output_routes(SubtaskId("a", index))[0].channels) for index in range(2)] == [1, 1]
    assert {(c.sender.vertex, c.sender.index) for c in plan.input_channels(SubtaskId("s", 1))} == {("a", 1), ("b", 1)}


# --- any graph ------------------------------------------------------------------------------------------------------------


@st.composite
def any_graph(draw: st.DrawFn) -> LogicalGraph:
    """Sources first, then operators that read anything before them, then a sink for whatever nobody reads."""
    width = st.integers(1, 3)
    nodes = [source(f"source{number}", draw(width)) for number in range(draw(st.integers(1, 3)))]
    edges: list[Edge] = []
    for number in range(draw(st.integers(0, 5))):
        node = operator(f"operator{number}", draw(width))
        known = [each.uid for each in nodes]
        inputs = draw(st.lists(st.sampled_from(known), min_size=1, max_size=3, unique=True))
        edges.extend(Edge(uid, node.uid, exchange=draw(st.sampled_from(Exchange))) for uid in inputs)
        nodes.append(node)
    read = {edge.source for edge in edges}
    for node in [each for each in nodes if each.uid not in read]:
        nodes.append(sink(f"sink-{node.uid}", draw(width)))
        edges.append(Edge(node.uid, f"sink-{node.uid}", exchange=draw(st.sampled_from(Exchange))))
    return LogicalGraph(tuple(nodes), tuple(edges))


def follow(plan: ExecutionPlan, level: int, partition: int, channel: ChannelId) -> SubtaskId:
    """Where a row of the channel comes out, hop by hop."""
    while True:
        place = plan.levels[level][partition]
        if isinstance(place, SubtaskPlace):
            return place.subtask
        partition = plan.relay_hops(level, place)[channel]
        level += 1


@given(any_graph())
def test_every_channel_leads_from_one_sender_to_the_one_receiver_that_expects_it(drawn: LogicalGraph) -> None:
    plan = make_plan(drawn, 128)
    sent: dict[ChannelId, SubtaskId] = {}
    for subtask in plan.subtasks:
        level = plan.level_of[subtask.vertex]
        for route in plan.output_routes(subtask):
            for channel, hop in zip(route.channels, route.hops, strict=True):
                assert channel not in sent, "two routes share a channel"
                sent[channel] = follow(plan, level + 1, hop, channel)
                assert plan.sender_of[channel] == subtask
    received = {incoming.channel: subtask for subtask in plan.subtasks for incoming in plan.input_channels(subtask)}
    assert sent == received
    assert set(plan.sender_of) == set(sent)


@given(any_graph())
def test_levels_only_ever_read_the_level_before_and_hold_every_subtask_once(drawn: LogicalGraph) -> None:
    plan = make_plan(drawn, 128)
    for edge in plan.edges:
        assert plan.level_of[edge.source_vertex] < plan.level_of[edge.target_vertex]
    for vertex in plan.vertices:
        if vertex.is_source and any(edge.source_vertex == vertex.id for edge in plan.edges):
            readers = [plan.level_of[edge.target_vertex] for edge in plan.edges if edge.source_vertex == vertex.id]
            assert plan.level_of[vertex.id] == min(readers) - 1, "a source stands as late as its readers allow"
    expected = {SubtaskId(vertex.id, index) for vertex in plan.vertices for index in range(vertex.parallelism)}
    assert len(plan.subtasks) == len(expected) and set(plan.subtasks) == expected
    assert sum(len(vertex.members) for vertex in plan.vertices) == len(drawn.nodes)


@given(any_graph())
def test_channels_of_an_edge_are_all_pairs_or_for_forward_edges_equal_partners(drawn: LogicalGraph) -> None:
    plan = make_plan(drawn, 128)
    for number, edge in enumerate(plan.edges):
        senders, receivers = plan.vertex(edge.source_vertex).parallelism, plan.vertex(edge.target_vertex).parallelism
        pairs = {
            (incoming.sender.index, subtask.index)
            for subtask in plan.subtasks
            for incoming in plan.input_channels(subtask)
            if incoming.edge == number
        }
        if edge.exchange is Exchange.FORWARD:
            assert senders == receivers and pairs == {(index, index) for index in range(senders)}
        else:
            assert pairs == {(a, b) for a in range(senders) for b in range(receivers)}
