"""What is gathered of a key's records in a window, and what is told of it: for windows that are kept by key."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from cutwater.flow.event_time import Times
from cutwater.flow.watermarks import Milliseconds
from cutwater.operators.operator import Collector, OperatorContext
from cutwater.operators.window_results import of_windows, with_window


class KeyWindow(NamedTuple):
    """One window of one key; ``content`` is what was gathered."""

    start: Milliseconds
    end: Milliseconds
    content: Any


class Told(NamedTuple):
    """``key`` as state knows it: the value, or a tuple of them."""

    key: Any
    window: KeyWindow


class WindowContent(ABC):
    """Records come in fragments: those of one batch that are in one window of a key, in the order in which they came (of
    sessions: by time)."""

    merges: bool
    """Whether two contents become one that is as if all records had come to it; else records are added one by one, to each
    window that they are in."""

    by_clock: bool = False
    """Whether what comes out depends on when."""

    @abstractmethod
    def describe(self) -> str:
        """What its state was gathered by."""

    @abstractmethod
    def bind(self, schema: pa.Schema, keys: Sequence[str]) -> pa.Schema:
        """In the driver: the schema of the results, without the window's two ends."""

    @property
    @abstractmethod
    def where_ends_stand(self) -> int:
        """Before which column of the results the window's two ends are put."""

    @property
    @abstractmethod
    def stored_type(self) -> pa.DataType: ...

    def side_schemas(self) -> Mapping[str, pa.Schema]:
        return {}

    @abstractmethod
    def open(self, ctx: OperatorContext) -> None: ...

    @abstractmethod
    def of_fragments(self, ordered: pa.RecordBatch, fragments: Times, count: int) -> list[Any]:
        """What each fragment brings; ``fragments`` says to which one a record belongs, ascending."""

    @abstractmethod
    def added(self, before: Any, fragment: Any) -> Any:
        """The content with what one fragment brings; ``before`` None: the first one. Neither is changed."""

    @abstractmethod
    def merged(self, before: Any, after: Any) -> Any:
        """One content of two that touch; ``before`` is the one that was gathered first. Neither is changed."""

    @abstractmethod
    def results(self, told: Iterable[Told], out: Collector) -> tuple[pa.RecordBatch, list[KeyWindow]]:
        """Rows, and the window of each. A function of the user is called for one of ``told`` before the next is taken, because
        whoever gives them may end a step that has become long."""

    def know(self, watermark: Milliseconds) -> None:  # noqa: B027 (optional hook)
        """What the function's context says of time."""

    def inline_with(self, inline: Mapping[str, Any]) -> Any:
        """For a snapshot: ``inline`` and what the function keeps of its own."""
        return inline

    def close(self) -> None:  # noqa: B027 (optional hook)
        """Called once, also after a failure."""


def tell(content: WindowContent, told: Iterable[Told], schema: pa.Schema, out: Collector, early: bool | None) -> None:
    """Emit the results of ``told`` with the columns of their windows. ``early`` None: nothing is marked."""
    left = iter(told)
    if (first := next(left, None)) is None:
        return
    results, windows = content.results(chain((first,), left), out)
    if results.num_rows == 0:
        return
    starts = np.array([window.start for window in windows], np.int64)
    ends = np.array([window.end for window in windows], np.int64)
    window = of_windows(starts, ends, early)
    out.emit(with_window(results, content.where_ends_stand, window, schema))
