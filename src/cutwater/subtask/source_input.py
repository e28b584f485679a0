"""The splits that one source subtask reads, and where it stands in each."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pyarrow as pa

from cutwater.connectors.source import EndOfSplit, Source, SourceContext, SplitReader
from cutwater.flow.ids import CheckpointId

Json = Any

MOST_OPEN_SPLITS = 16


@dataclass(slots=True)
class _Split:
    split: Json
    position: Json
    ended: bool
    reader: SplitReader | None = None


@dataclass(frozen=True, slots=True)
class SourceBatch:
    main: pa.RecordBatch | None
    side: dict[str, pa.RecordBatch]


class SourceInput:
    """Read on the subtask's loop; every split is asked in turn, so that none starves the others."""

    def __init__(self, source: Source, ctx: SourceContext, splits: Sequence[Json]) -> None:
        self._source = source
        self._ctx = ctx
        self._splits: list[_Split] = []
        self._turn = 0
        self._positions_at: dict[CheckpointId, list[tuple[_Split, Json]]] = {}
        self.add(splits)

    def add(self, splits: Sequence[Json]) -> None:
        """``{"split": ..., "position": ..., "ended": ...}`` of a checkpoint, or a new split with position None."""
        known = [split.split for split in self._splits]
        self._splits.extend(
            _Split(told["split"], told.get("position"), bool(told.get("ended")))
            for told in splits
            if told["split"] not in known
        )

    @property
    def exhausted(self) -> bool:
        return self._source.bounded and all(split.ended for split in self._splits)

    def next(self, max_rows: int, timeout: timedelta) -> SourceBatch | None:
        """The next batch of any split; None when nothing came. Waits at most about ``timeout``."""
        # Later splits are opened when earlier ones ended: thousands of files do not mean thousands of open readers.
        live = [split for split in self._splits if not split.ended][:MOST_OPEN_SPLITS]
        patience = timeout if len(live) == 1 else timedelta(0)
        for _ in range(len(live)):
            split = live[self._turn % len(live)]
            self._turn += 1
            reader = self._reader(split)
            taken = reader.next_batch(max_rows, patience)
            side = {tag: batch for tag, batch in reader.side_batches().items() if batch.num_rows}
            if isinstance(taken, EndOfSplit):
                split.position = reader.position()
                split.ended = True
                reader.close()
                split.reader = None
                taken = None
            if side or (taken is not None and taken.num_rows):
                return SourceBatch(taken, side)
        return None

    def _reader(self, split: _Split) -> SplitReader:
        if split.reader is None:
            split.reader = self._source.open(split.split, split.position, self._ctx)
        return split.reader

    def positions(self) -> list[Json]:
        """For the checkpoint: after the last batch returned, ended splits included, so that none is found anew."""
        for split in self._splits:
            if split.reader is not None:
                split.position = split.reader.position()
        return [{"split": s.split, "position": s.position, "ended": s.ended} for s in self._splits]

    def remember(self, checkpoint: CheckpointId) -> None:
        self._positions_at[checkpoint] = [(split, split.position) for split in self._splits]

    def checkpoint_completed(self, checkpoint: CheckpointId) -> None:
        for split, position in self._positions_at.get(checkpoint, ()):
            if split.reader is not None:
                split.reader.checkpoint_completed(checkpoint, position)
        for older in [n for n in self._positions_at if n <= checkpoint]:
            del self._positions_at[older]

    def close(self) -> None:
        for split in self._splits:
            if split.reader is not None:
                split.reader.close()
                split.reader = None
