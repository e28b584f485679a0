"""Records that came too late are sorted out of a batch."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cutwater.flow.event_time import Times


def in_time(
    batch: pa.RecordBatch, numbers: Times, late: npt.NDArray[np.bool_], give_away: Callable[[pa.RecordBatch], None]
) -> tuple[pa.RecordBatch, Times]:
    """The records that are not ``late``, and their ``numbers`` (times, panes); the others are given away."""
    if not late.any():
        return batch, numbers
    give_away(batch.filter(pa.array(late)))
    return batch.filter(pa.array(~late)), numbers[~late]
