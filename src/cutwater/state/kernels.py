"""All compiled kernels at once: loaded before the workers fork, so that no subtask compiles or loads while it runs."""

import numpy as np
import pyarrow as pa

from cutwater.flow.partitioning import partition
from cutwater.state.memory_aggregates import MemoryAggregateTable
from cutwater.state.tables import Column, Merge, Update


def warm_up() -> None:
    """Import (that compiles or loads every kernel) and run the common ones once. Starts no threads."""
    values = pa.array([1, 2, 1], pa.int64())
    texts = pa.array(["a", "b", "a"])
    for keys in (pa.record_batch([values], names=["k"]), pa.record_batch([values, texts], names=["k", "s"])):
        table, restored = (
            MemoryAggregateTable(
                "warm_up",
                "warm_up",
                keys.schema,
                [Column("n", pa.int64(), nullable=False), Column("sum", pa.float64())],
                128,
            )
            for _ in range(2)
        )
        touched = table.locate(keys)
        table.update(touched, [Update(0, Merge.COUNT), Update(1, Merge.ADD, values.cast(pa.float64()))])
        table.read(touched.unique)
        frozen = table.freeze()
        restored.restore(frozen.batches())
        frozen.release()
        partition(keys, np.array([0, 1, 0], np.int32), 2)
