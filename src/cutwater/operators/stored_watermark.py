"""How far time had come, in a snapshot: what was late before a restore is late behind it."""

from collections.abc import Mapping
from typing import Any

from cutwater.flow.watermarks import MIN_WATERMARK, Milliseconds
from cutwater.operators.operator import OperatorContext


def stored_watermark(time: Milliseconds) -> Mapping[str, Any]:
    """The inline part of a snapshot."""
    return {"watermarks": [] if time == MIN_WATERMARK else [time]}


def restored_watermark(ctx: OperatorContext) -> Milliseconds:
    """Where the slowest of the old subtasks stood."""
    parts = ctx.restored.inline if ctx.restored is not None else ()
    return min((time for part in parts for time in part.get("watermarks", ())), default=MIN_WATERMARK)
