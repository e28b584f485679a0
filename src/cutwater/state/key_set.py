"""A set of keys in columns."""

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cutwater.state.key_index import KeyIndex


class KeySet:
    def __init__(self, keys: pa.Schema) -> None:
        self._index = KeyIndex(keys)

    @staticmethod
    def of(keys: pa.RecordBatch) -> "KeySet":
        found = KeySet(keys.schema)
        found.add(keys)
        return found

    def add(self, keys: pa.RecordBatch) -> None:
        self._index.locate(keys.columns, keys.num_rows)

    def all(self) -> pa.RecordBatch:
        """Of which there are some."""
        frozen = self._index.freeze()
        columns, _ = frozen.part(0, frozen.rows, max_parallelism=1)
        return pa.RecordBatch.from_arrays(columns, schema=frozen.schema)

    def among(self, keys: pa.RecordBatch) -> npt.NDArray[np.bool_]:
        """Which of its rows have a key that is in the set."""
        return self._index.find(keys.columns, keys.num_rows) >= 0

    def rows_of(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Those that have such a key; their first columns are the key's."""
        keys = rows.select(list(range(len(self._index.keys))))
        return rows.filter(pa.array(self.among(keys)))
