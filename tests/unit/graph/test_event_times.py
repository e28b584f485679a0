"""Which inputs decide how far time has come."""

from cutwater.flow.ids import SubtaskId
from cutwater.graph.event_times import with_times
from cutwater.graph.logical import Edge, Exchange, LogicalGraph, Node, NodeKind
from cutwater.graph.plan import make_plan


def graph(timed: str, *edges: tuple[str, str]) -> LogicalGraph:
    """Nodes are letters in alphabetical order; event time begins at those in ``timed``. Nothing is chained."""
    uids = sorted({uid for edge in edges for uid in edge})
    read = {target for _, target in edges}
    nodes = [
        Node(uid, uid, NodeKind.OPERATOR if uid in read else NodeKind.SOURCE, 2, None, begins_time=uid in timed)
        for uid in uids
    ]
    return LogicalGraph(
        tuple(nodes),
        tuple(Edge(source, target, port, Exchange.KEY_GROUP) for port, (source, target) in enumerate(edges)),
    )


def told_time_by(drawn: LogicalGraph, receiver: str) -> set[str]:
    inputs = make_plan(drawn, 128).input_channels(SubtaskId(receiver, 1))
    return {each.sender.vertex for each in inputs if each.tells_time}


def test_time_goes_on_from_where_it_begins_to_all_that_follows() -> None:
    drawn = graph("c", ("a", "c"), ("c", "d"), ("b", "d"), ("d", "e"), ("b", "f"))
    assert with_times(drawn) == {"c", "d", "e"}


def test_an_input_without_times_is_left_out_where_another_has_them() -> None:
    drawn = graph("c", ("a", "c"), ("c", "d"), ("b", "d"))
    assert told_time_by(drawn, "d") == {"c"}
    assert told_time_by(drawn, "c") == {"a"}, "where times begin, what comes in has none, and nothing else is there"


def test_inputs_that_have_times_all_count_and_so_do_all_where_none_has() -> None:
    assert told_time_by(graph("ab", ("a", "c"), ("b", "c")), "c") == {"a", "b"}
    assert told_time_by(graph("", ("a", "c"), ("b", "c")), "c") == {"a", "b"}


def test_an_input_counts_when_any_way_to_it_has_times() -> None:
    drawn = graph("b", ("a", "d"), ("b", "d"), ("b", "e"), ("c", "e"), ("d", "f"), ("e", "f"), ("c", "f"))
    assert told_time_by(drawn, "f") == {"d", "e"}
