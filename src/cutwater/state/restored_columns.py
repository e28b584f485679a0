"""A row table whose rows are looked at in columns while it is restored, on backends that can show them so and those that cannot."""

from collections.abc import Iterator
from itertools import islice
from typing import Any

import pyarrow as pa

from cutwater.flow.arrow import Array
from cutwater.state.backend import KeyedStateStore
from cutwater.state.tables import RestoresColumns, RowTable, See, ShowsRestored
from cutwater.state.uncollected import uncollected

RESTORED_ROWS = 8192


def table_seen(store: KeyedStateStore, name: str, keys: pa.Schema, value: pa.DataType, see: See) -> RowTable:
    """Created after what is restored was given to ``store``. ``see`` gets each row of it once."""
    with uncollected():
        is_shown = isinstance(store, ShowsRestored) and store.show_restored(name, see)
        table = store.rows(name, keys, value)
        if not is_shown:
            for some, values in _restored(table, value):
                see(some, values)
    return table


def _restored(table: RowTable, value: pa.DataType) -> Iterator[tuple[list[Any], Array]]:
    if isinstance(table, RestoresColumns):
        yield from table.restored(RESTORED_ROWS)
        return
    items = table.items()
    while part := list(islice(items, RESTORED_ROWS)):
        yield [key for key, _ in part], pa.array([each for _, each in part], value)
