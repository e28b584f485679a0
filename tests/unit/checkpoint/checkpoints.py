"""Checkpoints to test with."""

from cutwater.checkpoint.checksum import checksum_of
from cutwater.checkpoint.completed import CompletedCheckpoint, StateOwner, SubtaskRecord, VertexShape
from cutwater.checkpoint.job_store import JobStore
from cutwater.checkpoint.layout import JobLayout
from cutwater.checkpoint.publication import Publication
from cutwater.checkpoint.snapshot import StoredOperator, SubtaskMetrics, SubtaskSnapshot
from cutwater.checkpoint.statistics import CheckpointKind
from cutwater.checkpoint.storage import CheckpointStorage
from cutwater.flow.ids import Attempt, CheckpointId, SubtaskId
from cutwater.state.stored import StoredFile, StoredTable

METRICS = SubtaskMetrics(0.1, 0.2, 0.001, 0.3, 100, 0, 0.01)


def shape(vertex: str, uids: tuple[str, ...], parallelism: int) -> VertexShape:
    """Whatever stands under one of the uids can read what anything kept there."""
    return VertexShape(vertex, uids, parallelism, (StateOwner("any", "anything"),) * len(uids))


def completed(
    id: int,
    *,
    job: str = "job",
    incarnation: str = "i-1",
    attempt: int = 1,
    kind: CheckpointKind = CheckpointKind.CHECKPOINT,
    folder: str | None = None,
    snapshots: tuple[SubtaskSnapshot, ...] = (),
    max_parallelism: int = 128,
) -> CompletedCheckpoint:
    vertices = dict.fromkeys(each.vertex for each in snapshots)
    graph = []
    for vertex in vertices:
        own = [each for each in snapshots if each.vertex == vertex]
        uids = dict.fromkeys(operator.uid for each in own for operator in each.operators)
        graph.append(shape(vertex, tuple(uids) or (vertex,), len(own)))
    return CompletedCheckpoint(
        job=job,
        incarnation=incarnation,
        attempt=Attempt(attempt),
        id=CheckpointId(id),
        kind=kind,
        unaligned=False,
        folder=f"{job}/chk-{id}" if folder is None else folder,
        triggered_at=1_700_000_000.25,
        duration=0.5,
        max_parallelism=max_parallelism,
        graph=tuple(graph),
        subtasks=tuple(SubtaskRecord(each, METRICS) for each in snapshots),
    )


def publish_next(store: JobStore) -> tuple[CheckpointId, Publication]:
    """Reserve an id, store one table, publish: a whole checkpoint of a job with one subtask."""
    record = store.record()
    assert record is not None
    id = store.reserve_id()
    checkpoint = with_one_table(
        store.storage, store.layout.checkpoint_folder(id), id, record.incarnation, record.attempt
    )
    return id, store.publish(checkpoint)


def with_one_table(
    storage: CheckpointStorage, folder: str, id: int, incarnation: str, attempt: int, **settings: object
) -> CompletedCheckpoint:
    content = f"state of {id}".encode()
    files = JobLayout("").files_of(SubtaskId("counts", 0), Attempt(attempt))
    table_file = files.own(CheckpointId(id), "counts", "n").rpartition("/")[2]
    name = f"{folder}/{table_file}" if folder else table_file
    storage.put(name, content)
    table = StoredTable("n", (StoredFile(name, len(content), checksum_of(content)),), 1, 0, 5)
    snapshot = SubtaskSnapshot("counts", 0, False, (StoredOperator("counts", None, (table,)),))
    return completed(id, incarnation=incarnation, attempt=attempt, folder=folder, snapshots=(snapshot,), **settings)  # type: ignore[arg-type]
