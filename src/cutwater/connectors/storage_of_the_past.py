"""A checkpoint storage that went back in time, as a copy that was put back or one of which a part was deleted, counts attempts and
checkpoints a second time. The output went on: it shows that rows would be written again."""

from collections.abc import Iterator

from cutwater.connectors.manifest import committed_behind, last_committed
from cutwater.connectors.sink import SinkContext
from cutwater.connectors.staging import Staging, checkpoint_of, of_another_run
from cutwater.errors import RestoreError


def refuse_storage_of_the_past(staging: Staging, ctx: SinkContext, name: str, *, partitioned: bool) -> None:
    """By a sink of files, before it commits what the storage tells it. ``name``: as the user calls the sink."""
    for found in _unknown_to_the_storage(staging, ctx, partitioned=partitioned):
        raise RestoreError(out_of_step(staging, ctx, name, found))


def out_of_step(staging: Staging, ctx: SinkContext, name: str, found: str) -> str:
    return (
        f"{name}: {ctx.uid}, subtask {ctx.subtask}, attempt {ctx.attempt}: {found}, which the checkpoint storage "
        f"knows nothing of. Was a copy of the storage put back, or a part of it deleted, or does another driver run on a "
        f"copy? Rows that are in {staging.target} already would be written again. Put {staging.target} and "
        f"{staging.root} back to that moment too. A new folder for the sink gets these rows as well: then use only what "
        f"{staging.target} has of the checkpoints before."
    )


def _unknown_to_the_storage(staging: Staging, ctx: SinkContext, *, partitioned: bool) -> Iterator[str]:
    last = last_committed(staging, ctx.incarnation, ctx.uid)
    if last is not None and last[1] >= ctx.attempt:
        yield f"checkpoint {last[0]} was committed by attempt {last[1]}"
    known = ctx.visible_up_to
    if known is not None:
        listed = committed_behind(staging, ctx.incarnation, ctx.uid, known)
        if listed is not None:
            yield f"{listed} was committed with checkpoint {checkpoint_of(listed)}"
        # Files become visible before the manifest that lists them is written, and a job may have ended in between. One subtask
        # looks, as there may be many.
        if ctx.subtask == 0:
            path = staging.visible_behind(ctx.incarnation, ctx.uid, known, partitioned=partitioned)
            if path is not None:
                yield f"{path} was committed with checkpoint {checkpoint_of(path.name)}"
    for path, written in staging.staged(ctx.incarnation, ctx.uid):
        if of_another_run(ctx, written):
            yield f"{path} was written by attempt {written.attempt}"
