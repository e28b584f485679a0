"""Everything about a job that stays the same over its attempts."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta

import pyarrow as pa

from cutwater.checkpoint.completed import VertexShape
from cutwater.checkpoint.fit import DeclaredStates
from cutwater.checkpoint.in_flight import EdgeShape
from cutwater.checkpoint.snapshot import EdgeName, InFlightEdge
from cutwater.config import Checkpointing, CheckpointMode
from cutwater.connectors.sink import Sink, TwoPhaseCommitSink
from cutwater.connectors.source import Source
from cutwater.flow.ids import Attempt, SubtaskId
from cutwater.graph.chaining import Vertex
from cutwater.graph.plan import ExecutionPlan
from cutwater.job.state_owners import declared_by, owner_of
from cutwater.restart import RestartStrategy
from cutwater.state.backend import StateBackend
from cutwater.subtask.limits import FlowLimits
from cutwater.subtask.setup import Guarantee, SubtaskSetup


@dataclass(frozen=True, slots=True)
class CollectedOutput:
    """What ``collect(name)`` gathers: the uid of its sink, and the schema of its rows."""

    uid: str
    schema: pa.Schema


@dataclass(frozen=True)
class JobDefinition:
    name: str
    plan: ExecutionPlan
    schemas: Mapping[int, pa.Schema]
    """Schema of the records of each edge of the plan."""
    sources: Mapping[str, Source]
    sinks: Mapping[str, Sink]
    collected: Mapping[str, CollectedOutput]
    """By the name given to ``collect``."""
    backend: StateBackend
    restart: RestartStrategy
    checkpointing: Checkpointing | None
    limits: FlowLimits = field(default_factory=FlowLimits)
    slot_timeout: timedelta = timedelta(minutes=1)
    notices: tuple[str, ...] = ()
    """What the log says when the job starts."""

    @property
    def guarantee(self) -> Guarantee:
        mode = self.checkpointing.mode if self.checkpointing is not None else CheckpointMode.AT_LEAST_ONCE
        return Guarantee(mode.value)

    def shapes(self) -> tuple[VertexShape, ...]:
        return tuple(
            VertexShape(
                vertex.id,
                tuple(node.uid for node in vertex.members),
                vertex.parallelism,
                tuple(owner_of(node) for node in vertex.members),
            )
            for vertex in self.plan.vertices
        )

    def edge_shapes(self) -> tuple[EdgeShape, ...]:
        """The edges that rows may be on when a checkpoint is cut."""
        return tuple(
            EdgeShape(
                self._in_flight_edge(number),
                number,
                edge.target_vertex,
                self.plan.vertex(edge.target_vertex).parallelism,
                self.plan.vertex(edge.source_vertex).parallelism,
            )
            for number, edge in enumerate(self.plan.edges)
        )

    def _in_flight_edge(self, number: int) -> InFlightEdge:
        edge = self.plan.edges[number]
        return InFlightEdge(
            EdgeName(edge.source, edge.tag, edge.target, edge.port),
            self.schemas[number].to_string(show_field_metadata=False, show_schema_metadata=False),
            edge.exchange.value,
            edge.key,
        )

    def declared_states(self) -> dict[str, DeclaredStates]:
        """By uid, where it is the user who names the states."""
        found = {node.uid: declared_by(node) for vertex in self.plan.vertices for node in vertex.members}
        return {uid: states for uid, states in found.items() if states is not None}

    def setup_of(
        self, subtask: SubtaskId, attempt: Attempt, incarnation: str, vertex: Vertex | None = None
    ) -> SubtaskSetup:
        """What one subtask is told; ``vertex`` stands in for the plan's own where operators must not be shared."""
        plan = self.plan
        inputs = plan.input_channels(subtask)
        return SubtaskSetup(
            job=self.name,
            incarnation=incarnation,
            attempt=attempt,
            subtask=subtask,
            vertex=vertex or plan.vertex(subtask.vertex),
            max_parallelism=plan.max_parallelism,
            inputs=inputs,
            routes=plan.output_routes(subtask),
            input_schemas=self.schemas,
            input_edges={number: self._in_flight_edge(number) for number in {each.edge for each in inputs}},
            backend=self.backend,
            checkpointed=self.checkpointing is not None,
            guarantee=self.guarantee,
            stop_the_world=self.checkpointing is not None and self.checkpointing.stop_the_world,
            limits=self.limits,
        )

    def committing_subtasks(self) -> frozenset[SubtaskId]:
        vertices = {vertex.id for vertex in self.plan.vertices if vertex.has_sink}
        return frozenset(subtask for subtask in self.plan.subtasks if subtask.vertex in vertices)

    @property
    def all_sinks_idempotent(self) -> bool:
        """Whether output may be written again without harm; two-phase output may not."""
        return not any(isinstance(sink, TwoPhaseCommitSink) for sink in self.sinks.values()) and not self.collected
