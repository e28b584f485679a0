"""Names for Arrow's generic classes, which the type checker wants with a parameter and the runtime without."""

from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    Array = pa.Array[Any]
    Field = pa.Field[Any]
else:
    Array = pa.Array
    Field = pa.Field
