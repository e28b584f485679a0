"""Rows of some keys among those of others."""

import pyarrow as pa

from cutwater.state.key_index import KeyIndex


class WantedKeys:
    def __init__(self, keys: pa.RecordBatch) -> None:
        """All different, in plain types."""
        self._index = KeyIndex(keys.schema, keys.num_rows)
        self._index.locate(keys.columns, keys.num_rows)
        self._width = keys.num_columns

    def among(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Those of ``rows``, which begin with the columns of the key, that have such a key."""
        found = self._index.find(rows.columns[: self._width], rows.num_rows)
        return rows.filter(pa.array(found >= 0))
