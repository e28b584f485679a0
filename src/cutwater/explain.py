"""A plan in words, for people: what runs where, what it needs, what it guarantees."""

from collections.abc import Iterator

from cutwater.graph.plan import RelayPlace
from cutwater.guarantee import path_guarantees
from cutwater.job.definition import JobDefinition


class Explanation(str):
    """The plan that was printed, as a text. Left at the end of a notebook's cell, it is not shown a second time."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"<the plan as printed, {len(self.splitlines())} lines>"


def explain(definition: JobDefinition) -> str:
    return "\n".join(
        [
            *_operators(definition),
            *_chains(definition),
            *_levels(definition),
            *_guarantees(definition),
            *_spark_plan(definition),
        ]
    )


def _operators(definition: JobDefinition) -> Iterator[str]:
    graph = definition.plan.graph.with_forward_only_between_equals()
    yield "Operators"
    for node in graph.nodes:
        mark = "" if node.user_uid else " (derived uid)"
        yield f"  {node.uid}{mark}: {node.name}, parallelism {node.parallelism}"
        for edge in graph.inputs(node.uid):
            key = f" on {', '.join(edge.key)}" if edge.key else ""
            side = f" (side output {edge.tag})" if edge.tag else ""
            yield f"    reads {edge.source}{side} by {edge.exchange.value}{key}"


def _chains(definition: JobDefinition) -> Iterator[str]:
    yield "Chains (operators that share a subtask)"
    for vertex in definition.plan.vertices:
        yield f"  {vertex.id}: {' -> '.join(node.uid for node in vertex.members)}"


def _levels(definition: JobDefinition) -> Iterator[str]:
    plan = definition.plan
    yield f"Levels (one Spark stage each); slots needed at the same time: {plan.slots_needed}"
    for number, places in enumerate(plan.levels):
        subtasks = [str(place.subtask) for place in places if not isinstance(place, RelayPlace)]
        relays = sum(isinstance(place, RelayPlace) for place in places)
        yield f"  level {number}: {', '.join(subtasks)}" + (f", {relays} relays" if relays else "")


def _guarantees(definition: JobDefinition) -> Iterator[str]:
    yield "Guarantee per path"
    paths = path_guarantees(
        definition.plan.graph, dict(definition.sources), dict(definition.sinks), definition.checkpointing
    )
    for path in paths:
        yield f"  {path.source} -> {path.sink}: {path}"


def _spark_plan(definition: JobDefinition) -> Iterator[str]:
    yield "Spark plan"
    for number, places in enumerate(definition.plan.levels):
        if number == 0:
            yield f"  range({len(places)}) -> mapInArrow(level 0)"
        else:
            yield f"  -> repartitionById({len(places)}, target), pipelined -> mapInArrow(level {number})"
