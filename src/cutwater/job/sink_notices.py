"""What sinks hear as ``committed_everywhere``: all that became visible, in its order, and again until they have heard it."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from cutwater.checkpoint.completed import CommittedOutput
from cutwater.connectors.sink import Sink, TwoPhaseCommitSink
from cutwater.job.driver_io import DriverIO
from cutwater.job.output import VisibleOutput


class SinkNotices:
    """Of one attempt, on its thread. One call at a time for each sink, and none about later output before the one that
    failed got through: whoever reads a sink's manifests never sees a gap.

    What a sink has not heard is ``unheard``, for checkpoints to carry: whoever restores one tells the sink.
    """

    def __init__(self, sinks: Mapping[str, Sink], io: DriverIO, log: Callable[[str], None]) -> None:
        self._sinks = {uid: sink for uid, sink in sinks.items() if isinstance(sink, TwoPhaseCommitSink)}
        self._io = io
        self._log = log
        self._waiting: dict[str, deque[VisibleOutput]] = {uid: deque() for uid in self._sinks}
        self._asked: set[str] = set()
        self._problem: str | None = None
        self._settled: Callable[[str | None], None] | None = None

    def tell(self, output: Iterable[VisibleOutput]) -> None:
        for visible in output:
            if visible.uid in self._sinks:
                self._waiting[visible.uid].append(visible)
        self.try_again()

    def try_again(self) -> None:
        for uid, waiting in self._waiting.items():
            if waiting and uid not in self._asked:
                self._ask(uid)

    def unheard(self) -> Iterator[CommittedOutput]:
        for waiting in self._waiting.values():
            for visible in waiting:
                yield from visible.output

    def settle(self, settled: Callable[[str | None], None]) -> None:
        """Before the job ends: what failed is tried once more, then ``settled`` hears of the problem that is left."""

        def tried_again(problem: str | None) -> None:
            if problem is None:
                settled(None)
            else:
                self._settled = settled
                self.try_again()

        self._settled = tried_again
        self._settle_if_quiet()

    def _ask(self, uid: str) -> None:
        sink, visible = self._sinks[uid], self._waiting[uid][0]
        self._asked.add(uid)
        self._io.submit(
            lambda: sink.committed_everywhere(visible.checkpoint, visible.committables),
            lambda outcome: self._answered(uid, visible, outcome),
        )

    def _answered(self, uid: str, visible: VisibleOutput, outcome: Any) -> None:
        self._asked.discard(uid)
        if isinstance(outcome, BaseException):
            self._problem = (
                f"sink {uid!r}: checkpoint {visible.checkpoint} is committed, but committed_everywhere failed: "
                f"{type(outcome).__name__}: {outcome}"
            )
            self._log(f"{self._problem}; it is tried again with the next checkpoint, at the latest before the job ends")
        else:
            self._waiting[uid].popleft()
            if self._waiting[uid]:
                self._ask(uid)
        self._settle_if_quiet()

    def _settle_if_quiet(self) -> None:
        if self._settled is None or self._asked:
            return
        settled, self._settled = self._settled, None
        settled(self._problem if any(self._waiting.values()) else None)
