"""Sinks driven by checkpoints: what is written becomes visible once, whatever happens to notifications."""

import json
import pickle
import threading
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest

from cutwater.connectors.sink import PlainSink, Sink, SinkContext, TwoPhaseCommitSink
from cutwater.errors import CommitLost, ConfigError, CutwaterError, DataError, RestoreError
from cutwater.flow.ids import CheckpointId
from cutwater.flow.key_groups import KeyGroupRange
from cutwater.operators.operator import OperatorContext
from cutwater.operators.sink_operator import SinkOperator
from cutwater.operators.transactions import Retry
from cutwater.rows import batch_of
from cutwater.schema import arrow_schema
from tests.unit.operators.collecting import after

NUMBERS = arrow_schema("n long")
QUICK = Retry(attempts=3, first_delay=timedelta(0))


class Outside:
    """The outside system: what is prepared in it survives the sink, what is visible stays visible."""

    def __init__(self) -> None:
        self.open: dict[str, list[Any]] = {}
        self.prepared: dict[str, list[Any]] = {}
        self.visible: list[int] = []
        self.calls: list[str] = []
        self.commit_failures: list[Exception] = []


class RecordingSink(TwoPhaseCommitSink):
    """A real two-phase sink on ``Outside``."""

    def __init__(self, outside: Outside, *, background: bool = False) -> None:
        self.outside = outside
        self.prepare_in_background = background
        self.prepare_failure: Exception | None = None

    def open(self, ctx: SinkContext) -> None:
        self.ctx = ctx
        self.outside.calls.append("open")

    def recover(self, committables: Sequence[Any]) -> None:
        self.outside.calls.append(f"recover {len(committables)}")
        listed = {committable["name"] for committable in committables}
        self.outside.open.clear()
        for name in [name for name in self.outside.prepared if name not in listed]:
            del self.outside.prepared[name]

    def begin(self, name: str) -> str:
        assert name not in self.outside.open
        self.outside.open[name] = []
        self.outside.calls.append("begin")
        return name

    def write(self, txn: str, batch: pa.RecordBatch) -> None:
        self.outside.open[txn] += batch.column(0).to_pylist()
        self.outside.calls.append("write")

    def prepare(self, txn: str) -> Any:
        if self.prepare_failure is not None:
            raise self.prepare_failure
        rows = self.outside.open.pop(txn)
        self.outside.prepared[txn] = rows
        self.outside.calls.append(f"prepare for {self.ctx.checkpoint_id}")
        return {"name": txn, "rows": tuple(rows)} if rows != [0] else None

    def commit(self, committable: Any) -> None:
        if self.outside.commit_failures:
            raise self.outside.commit_failures.pop(0)
        assert isinstance(committable["rows"], list), "as JSON would give it"
        self.outside.calls.append(f"commit {committable['rows']}")
        self.outside.visible += self.outside.prepared.pop(committable["name"], [])

    def abort(self, committable: Any) -> None:
        del self.outside.prepared[committable["name"]]

    def close(self) -> None:
        self.outside.calls.append("close")


class NoBackend:
    incremental = False
    asynchronous = True

    def open(self, uid: str, key_groups: KeyGroupRange, max_parallelism: int) -> Any:
        raise AssertionError("a sink keeps no keyed state")


class Driver:
    def __init__(self) -> None:
        self.lines: list[str] = []

    def collected(self, uid: str, checkpoint: CheckpointId, writer: int, rows: bytes) -> None:
        raise AssertionError("nothing is collected")

    def printed(self, lines: Sequence[str]) -> None:
        self.lines += lines


class Restored:
    """What a checkpoint holds for the sink, after the way through JSON."""

    def __init__(self, *inline: Any) -> None:
        self.inline = json.loads(json.dumps(inline))

    def tables(self) -> Sequence[str]:
        return ()

    def batches(self, table: str) -> Any:
        raise AssertionError("a sink has no tables")


class Nowhere:
    def emit(self, batch: pa.RecordBatch) -> None:
        raise AssertionError("a sink emits nothing")

    def emit_side(self, tag: str, batch: pa.RecordBatch) -> None:
        raise AssertionError("a sink emits nothing")


def opened(
    sink: Sink, restored: Restored | None = None, *, attempt: int = 1, checkpointed: bool = True
) -> SinkOperator:
    operator = SinkOperator(sink, NUMBERS, retry=QUICK)
    operator.open(
        OperatorContext(
            job="words",
            uid="out",
            name="Out",
            subtask=2,
            parallelism=4,
            max_parallelism=128,
            attempt=attempt,
            incarnation="1f3a",
            key_groups=KeyGroupRange(64, 95),
            backend=NoBackend(),
            now=lambda: 0,
            driver=Driver(),
            checkpointed=checkpointed,
            restored=restored,
        )
    )
    return operator


def write(operator: SinkOperator, *numbers: int) -> None:
    operator.process(batch_of(list(numbers), NUMBERS, "test"), 0, Nowhere())


def cut(operator: SinkOperator, checkpoint: int) -> Any:
    """What the checkpoint stores for the sink."""
    snapshot = operator.snapshot(CheckpointId(checkpoint))
    if snapshot is None:
        return None
    return snapshot.inline() if callable(snapshot.inline) else snapshot.inline


def completed(operator: SinkOperator, checkpoint: int) -> None:
    operator.checkpoint_completed(CheckpointId(checkpoint))


def listed(inline: Any) -> list[int]:
    return [entry["checkpoint"] for entry in inline["committables"]]


BOTH = pytest.mark.parametrize("background", [False, True])


@BOTH
def test_rows_become_visible_when_their_checkpoint_completed_and_not_before(background: bool) -> None:
    outside = Outside()
    operator = opened(RecordingSink(outside, background=background))
    write(operator, 1, 2)
    assert listed(cut(operator, 1)) == [1]
    write(operator, 3)
    assert outside.visible == []
    completed(operator, 1)
    assert outside.visible == [1, 2]
    assert listed(cut(operator, 2)) == [2]
    completed(operator, 2)
    assert outside.visible == [1, 2, 3]


def test_a_transaction_is_begun_only_when_there_is_something_to_write() -> None:
    outside = Outside()
    operator = opened(RecordingSink(outside))
    assert cut(operator, 1) == {"committables": []}
    write(operator)
    completed(operator, 1)
    assert outside.calls == ["open", "recover 0"]


def test_names_carry_job_uid_subtask_attempt_and_a_counter() -> None:
    outside = Outside()
    operator = opened(RecordingSink(outside), attempt=7)
    write(operator, 1)
    cut(operator, 1)
    write(operator, 2)
    cut(operator, 2)
    assert list(outside.prepared) == ["words-1f3a-out-2-7-1", "words-1f3a-out-2-7-2"]


@BOTH
def test_a_lost_notification_is_made_good_by_the_next(background: bool) -> None:
    outside = Outside()
    operator = opened(RecordingSink(outside, background=background))
    write(operator, 1)
    cut(operator, 1)
    write(operator, 2)
    assert listed(cut(operator, 2)) == [1, 2], "the first is not confirmed committed"
    completed(operator, 2)
    assert outside.visible == [1, 2]


def test_a_late_notification_commits_only_what_it_covers_and_a_repeated_one_nothing() -> None:
    outside = Outside()
    operator = opened(RecordingSink(outside))
    write(operator, 1)
    cut(operator, 1)
    write(operator, 2)
    cut(operator, 2)
    completed(operator, 1)
    assert outside.visible == [1]
    completed(operator, 1)
    completed(operator, 2)
    completed(operator, 1)
    completed(operator, 2)
    assert outside.visible == [1, 2]
    assert [call for call in outside.calls if call.startswith("commit")] == ["commit [1]", "commit [2]"]


@BOTH
def test_an_aborted_checkpoint_keeps_its_rows_for_the_next(background: bool) -> None:
    outside = Outside()
    operator = opened(RecordingSink(outside, background=background))
    write(operator, 1)
    operator.snapshot(CheckpointId(1))  # aborted before its asynchronous part ran
    write(operator, 2)
    assert listed(cut(operator, 2)) == [1, 2]
    completed(operator, 2)
    assert outside.visible == [1, 2]


def test_a_background_part_that_runs_late_lists_nothing_younger() -> None:
    outside = Outside()
    operator = opened(RecordingSink(outside, background=True))
    write(operator, 1)
    first = operator.snapshot(CheckpointId(1))
    write(operator, 2)
    second = operator.snapshot(CheckpointId(2))
    assert first is not None
    assert second is not None
    assert listed(first.inline()) == [1]
    assert listed(second.inline()) == [1, 2]
    assert [call for call in outside.calls if call.startswith("prepare")] == ["prepare for 1", "prepare for 2"]


def test_nothing_prepared_is_nothing_to_commit() -> None:
    outside = Outside()
    operator = opened(RecordingSink(outside))
    write(operator, 0)
    assert cut(operator, 1) == {"committables": []}
    completed(operator, 1)
    assert outside.visible == []


@BOTH
def test_restore_commits_all_that_is_listed_before_anything_is_written(background: bool) -> None:
    outside = Outside()
    first = opened(RecordingSink(outside, background=background))
    write(first, 1)
    cut(first, 1)
    write(first, 2)
    stored = cut(first, 2)
    write(first, 3)
    cut(first, 3)  # never completed
    write(first, 4)  # crash: nobody closes anything

    second = opened(RecordingSink(outside, background=background), Restored(stored), attempt=2)
    assert outside.visible == [1, 2]
    assert outside.prepared == {}, "what no checkpoint lists is gone"
    assert outside.open == {}
    assert cut(second, 4) == {"committables": []}
    write(second, 3, 4)
    cut(second, 5)
    completed(second, 5)
    assert outside.visible == [1, 2, 3, 4]
    reopened = outside.calls[outside.calls.index("open", 1) :]
    assert reopened[:4] == ["open", "recover 2", "commit [1]", "commit [2]"]


def test_restore_after_the_commit_but_before_its_confirmation_commits_nothing_twice() -> None:
    outside = Outside()
    first = opened(RecordingSink(outside))
    write(first, 1)
    stored = cut(first, 1)
    completed(first, 1)  # crash right behind it
    opened(RecordingSink(outside), Restored(stored), attempt=2)
    assert outside.visible == [1]


def test_restore_of_several_old_subtasks_commits_by_checkpoint() -> None:
    outside = Outside()
    outside.prepared = {"a1": [1], "b2": [2], "a3": [3]}
    one = {"committables": [{"checkpoint": n, "value": {"name": f"a{n}", "rows": [n]}} for n in (1, 3)]}
    other = {"committables": [{"checkpoint": 2, "value": {"name": "b2", "rows": [2]}}]}
    opened(RecordingSink(outside), Restored(one, None, other), attempt=2)
    assert outside.visible == [1, 2, 3]


def test_state_of_another_operator_is_refused() -> None:
    with pytest.raises(RestoreError, match="which is not the state of a sink"):
        opened(RecordingSink(Outside()), Restored({"splits": []}))


def test_an_unknown_commit_failure_is_retried() -> None:
    outside = Outside()
    operator = opened(RecordingSink(outside))
    write(operator, 1)
    cut(operator, 1)
    outside.commit_failures = [ConnectionError("gone"), ConnectionError("gone")]
    completed(operator, 1)
    assert outside.visible == [1]


def test_a_commit_that_fails_again_and_again_raises_and_stays_listed() -> None:
    outside = Outside()
    operator = opened(RecordingSink(outside))
    write(operator, 1)
    cut(operator, 1)
    outside.commit_failures = [ConnectionError("gone")] * 3
    with pytest.raises(
        CutwaterError, match=r"sink 'out' of job 'words', subtask 2: commit of checkpoint 1 failed 3 times"
    ):
        completed(operator, 1)
    assert listed(cut(operator, 2)) == [1]
    completed(operator, 2)
    assert outside.visible == [1]


def test_a_lost_transaction_is_not_retried() -> None:
    outside = Outside()
    operator = opened(RecordingSink(outside))
    write(operator, 1)
    cut(operator, 1)
    outside.commit_failures = [CommitLost("expired"), ConnectionError("never asked")]
    with pytest.raises(CommitLost, match="expired"):
        completed(operator, 1)
    assert len(outside.commit_failures) == 1


@BOTH
def test_after_a_failed_prepare_no_later_checkpoint_can_be_taken(background: bool) -> None:
    outside = Outside()
    sink = RecordingSink(outside, background=background)
    operator = opened(sink)
    write(operator, 1)
    sink.prepare_failure = OSError("disk full")
    with pytest.raises(OSError, match="disk full"):
        cut(operator, 1)
    sink.prepare_failure = None
    write(operator, 2)
    with pytest.raises(OSError, match="disk full"):
        cut(operator, 2)


def test_a_committable_that_is_no_json_is_refused_at_once() -> None:
    class Wrong(RecordingSink):
        def prepare(self, txn: str) -> Any:
            return {"name": object()}

    operator = opened(Wrong(Outside()))
    write(operator, 1)
    with pytest.raises(DataError, match=r"prepare returned .* which is not JSON"):
        cut(operator, 1)


@BOTH
def test_the_final_checkpoint_commits_the_rest_and_no_transaction_is_begun_behind_the_end(background: bool) -> None:
    outside = Outside()
    operator = opened(RecordingSink(outside, background=background))
    write(operator, 1)
    after(operator.end_of_input(Nowhere(), drain=False))
    assert listed(cut(operator, 1)) == [1]
    completed(operator, 1)
    assert outside.visible == [1]
    assert cut(operator, 2) == {"committables": []}
    assert outside.calls.count("begin") == 1
    with pytest.raises(CutwaterError, match="behind the end of input"):
        write(operator, 2)


def test_without_checkpoints_everything_is_committed_at_the_end() -> None:
    outside = Outside()
    operator = opened(RecordingSink(outside), checkpointed=False)
    write(operator, 1)
    after(operator.end_of_input(Nowhere(), drain=True))
    assert outside.visible == [1]


def test_close_abandons_what_is_open_and_leaves_what_is_prepared() -> None:
    outside = Outside()
    operator = opened(RecordingSink(outside))
    write(operator, 1)
    cut(operator, 1)
    write(operator, 2)
    operator.close()
    assert list(outside.prepared.values()) == [[1]]
    assert outside.visible == []
    with pytest.raises(CutwaterError, match="closed before checkpoint 1 was committed"):
        completed(operator, 1)


def test_close_of_a_sink_that_was_never_opened_does_not_touch_it() -> None:
    outside = Outside()
    SinkOperator(RecordingSink(outside), NUMBERS).close()
    assert outside.calls == []


def test_a_cut_during_a_slow_commit_still_lists_it() -> None:
    outside = Outside()
    inside, go_on = threading.Event(), threading.Event()

    class Slow(RecordingSink):
        def commit(self, committable: Any) -> None:
            inside.set()
            assert go_on.wait(10)
            super().commit(committable)

    operator = opened(Slow(outside))
    write(operator, 1)
    cut(operator, 1)
    committer = threading.Thread(target=completed, args=(operator, 1))
    committer.start()
    assert inside.wait(10)
    write(operator, 2)
    assert listed(cut(operator, 2)) == [1, 2]
    go_on.set()
    committer.join(10)
    completed(operator, 2)
    assert outside.visible == [1, 2]


class Lines(PlainSink):
    """Buffers until it is flushed."""

    def __init__(self) -> None:
        self.buffer: list[Any] = []
        self.durable: list[int] = []

    def open(self, ctx: SinkContext) -> None:
        assert ctx.schema == NUMBERS
        self.print_lines = ctx.print_lines

    def write(self, batch: pa.RecordBatch) -> None:
        self.buffer += batch.column(0).to_pylist()

    def flush(self) -> None:
        self.durable += self.buffer
        self.buffer = []


def test_a_plain_sink_is_flushed_before_a_checkpoint_is_acknowledged_and_stores_nothing() -> None:
    sink = Lines()
    operator = opened(sink)
    write(operator, 1)
    assert sink.durable == []
    assert cut(operator, 1) is None
    assert sink.durable == [1]
    assert sink.print_lines is not None


def test_a_plain_sink_without_checkpoints_is_flushed_at_the_end() -> None:
    sink = Lines()
    operator = opened(sink, checkpointed=False)
    write(operator, 1)
    after(operator.end_of_input(Nowhere(), drain=True))
    assert sink.durable == [1]


def test_only_the_two_kinds_of_sinks_are_taken() -> None:
    class Neither(Sink):
        pass

    with pytest.raises(ConfigError, match=r"derive it from cw\.TwoPhaseCommitSink"):
        SinkOperator(Neither())


def test_the_schema_comes_from_the_pipeline_and_the_operator_travels() -> None:
    operator = SinkOperator(RecordingSink(Outside()))
    operator.output_schema([NUMBERS])
    again = pickle.loads(pickle.dumps(operator))  # noqa: S301 (our own bytes)
    assert again.schema == NUMBERS
