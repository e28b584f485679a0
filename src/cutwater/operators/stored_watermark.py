"""How far time had come, in a snapshot: what was late before a restore is late behind it."""

from collections.abc import Mapping
from typing import Any

from cutwater.flow.watermarks import MIN_WATERMARK, Milliseconds
from cutwater.operators.operator import OperatorContext


def stored_watermark(time: Milliseconds, due: Milliseconds | None = None) -> Mapping[str, Any]:
    """The inline part of a snapshot. ``due``: time has come further, but what that makes due is not done yet."""
    if due is not None:
        return {"watermarks": [time], "due": [due]}
    return {"watermarks": [] if time == MIN_WATERMARK else [time]}


def restored_watermark(ctx: OperatorContext) -> Milliseconds:
    """Where the slowest of the old subtasks stood."""
    parts = ctx.restored.inline if ctx.restored is not None else ()
    return min((time for part in parts for time in part.get("watermarks", ())), default=MIN_WATERMARK)


def restored_due(ctx: OperatorContext) -> Milliseconds:
    """How far time had come, though what it made due may not have been done. At another parallelism that is where the slowest
    of the old subtasks stood: rows that were on their way to it are still to come."""
    parts = ctx.restored.inline if ctx.restored is not None else ()
    return max((time for part in parts for time in part.get("due", ())), default=restored_watermark(ctx))
