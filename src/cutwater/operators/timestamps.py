"""``s.with_timestamps(...)``: where event time begins. Records pass unchanged; watermarks are made here."""

from collections.abc import Collection, Iterator, Sequence

import pyarrow as pa

from cutwater.flow.event_time import EventTime
from cutwater.flow.ids import CheckpointId
from cutwater.flow.watermarks import MAX_WATERMARK, MIN_WATERMARK, CombinedWatermark, Milliseconds
from cutwater.operators.operator import ALL_INPUT, Collector, Operator, OperatorContext, OperatorSnapshot


class WithTimestamps(Operator):
    """Behind a source, each split has a watermark of its own and the slowest counts; elsewhere there is one for all input.

    A split's watermark is its latest time less ``out_of_orderness``, less one millisecond: a record of just that age is in
    time. What was reached is part of the snapshot, so that what was late before is late after a restore.

    A split is idle when nothing came of it for ``idle_after`` and it is then asked in vain. That time may have passed in a jam,
    a pause or a slow function, while its records wait: alone it says nothing. Until all subtasks are open nobody sends: behind an
    exchange, patience begins when they are.
    """

    begins_time = True

    def __init__(self, time: EventTime, out_of_orderness: Milliseconds, idle_after: Milliseconds | None) -> None:
        self.time = time
        self._lag = out_of_orderness + 1
        self._patience = idle_after
        self.where = "with_timestamps"
        self._started = False
        self._latest: dict[str, Milliseconds] = {}
        self._heard: dict[str, Milliseconds] = {}
        """With ``idle_after``: when each active split was last heard of, by the clock; the longest silent first."""
        self._overdue: set[str] = set()
        """Not heard of for ``idle_after``, and not asked since."""
        self._fruitless: set[str] = set()
        """Overdue before, and what they gave then was dropped on its way here."""
        self._combined: CombinedWatermark[str] = CombinedWatermark()
        self._told = (MIN_WATERMARK, False)

    def output_schema(self, inputs: Sequence[pa.Schema]) -> pa.Schema:
        self.time.check(inputs[0], self.where)
        return inputs[0]

    def open(self, ctx: OperatorContext) -> None:
        self._now = ctx.now
        self.where = f"with_timestamps {ctx.name!r} ({ctx.uid})"
        self._started = ctx.behind_source  # a source tells of its splits when it begins to read
        for part in ctx.restored.inline if ctx.restored is not None else ():
            for split, time in part.get("split_watermarks", ()):
                # Of one split the furthest is its own; one for all input stands for the slowest of the old subtasks.
                choose = min if split == ALL_INPUT else max
                self._latest[split] = choose(time, self._latest.get(split, time))
        if not ctx.behind_source:
            # Also in the snapshot when there was no record yet: then this is the slowest.
            self._latest.setdefault(ALL_INPUT, MIN_WATERMARK)
            self._add(ALL_INPUT)

    def on_start(self) -> None:
        self._started = True
        for split in self._combined.inputs:
            self._hear(split)

    def on_splits(self, open_splits: Collection[str], out: Collector) -> None:
        # New ones first: they may bring records that are older than all that the ended ones gave.
        self._add(*(split for split in open_splits if split not in self._combined.inputs))
        for split in self._combined.inputs - set(open_splits):
            self._combined.remove(split)
            self._forget(split)
            self._latest.pop(split, None)
        self._tell(out)

    def _add(self, *splits: str) -> None:
        self._combined.add({split: self._latest.get(split, MIN_WATERMARK) for split in splits})
        for split in splits:
            self._hear(split)

    def process(self, batch: pa.RecordBatch, port: int, out: Collector) -> None:
        # Before anything behind sees the records: what is wrong with their times is told here, where the column was named.
        times = self.time.of(batch, self.where)
        out.emit(batch)
        split = self.split
        if batch.num_rows == 0 or split not in self._combined.inputs:
            return
        watermark = int(times.max()) - self._lag
        self._latest[split] = watermark = max(watermark, self._latest.get(split, MIN_WATERMARK))
        self._combined.advance(split, watermark)
        self._hear(split)
        self._tell(out)

    def on_watermark(self, watermark: Milliseconds, out: Collector) -> Iterator[None]:
        """Those from before end here, except the last one of all."""
        if watermark == MAX_WATERMARK:
            out.advance(watermark)
        yield from ()

    def on_idle(self, out: Collector) -> None:
        """It says itself when nothing comes."""

    def _hear(self, split: str) -> None:
        if self._patience is not None and self._started:
            self._forget(split)
            self._heard[split] = self._now()

    def _forget(self, split: str) -> None:
        self._heard.pop(split, None)
        self._overdue.discard(split)
        self._fruitless.discard(split)

    def next_timer(self) -> Milliseconds | None:
        if self._patience is None or not self._heard:
            return None
        return next(iter(self._heard.values())) + self._patience

    def on_processing_time(self, now: Milliseconds, out: Collector) -> Iterator[None]:
        while (due := self.next_timer()) is not None and due <= now:
            silent = next(iter(self._heard))
            del self._heard[silent]
            self._overdue.add(silent)
        yield from ()

    def on_asked(self, splits: Collection[str], out: Collector, *, in_vain: bool) -> None:
        overdue = self._overdue.intersection(splits)
        for split in overdue:
            if in_vain or split in self._fruitless:
                self._forget(split)
                self._combined.rest(split)
            else:
                # More may wait behind what was dropped. It has its patience once more: one that never brings anything here must
                # not hold the others back as long as there is something to be read.
                self._hear(split)
                self._fruitless.add(split)
        if overdue:
            self._tell(out)

    def _tell(self, out: Collector) -> None:
        told_time, told_idle = self._told
        time, idle = self._combined.time, self._combined.idle
        self._told = (time, idle)
        if time > told_time or (told_idle and not idle):
            out.advance(time)
        if idle and not told_idle:
            out.rest()

    def snapshot(self, checkpoint: CheckpointId) -> OperatorSnapshot:
        return OperatorSnapshot(inline={"split_watermarks": [[split, time] for split, time in self._latest.items()]})
