"""A key with many sessions: what is done with some of them costs as much as those, and one look at the list of all."""

from pathlib import Path
from random import Random
from typing import Any

import pytest

import cutwater as cw
from cutwater.flow.watermarks import Milliseconds
from cutwater.operators import session_windows
from cutwater.operators.key_sessions import KeySessions
from cutwater.operators.session_windows import SESSIONS_A_STEP, SessionWindows
from cutwater.operators.window_content import KeyWindow
from cutwater.rows import batch_of
from cutwater.state.backend import StateBackend
from tests.unit.operators.collecting import Collected, opened

SESSIONS = 3000
MOST_STEPS = 3 * SESSIONS // SESSIONS_A_STEP + 1
"""Two entries for one that became longer, and one to forget it."""
SCHEMA = "k string, ts long"


class Subject:
    """Sessions of one key, and how often the list of them was read and written since that was last asked."""

    def __init__(self, lateness: str, backend: StateBackend, monkeypatch: pytest.MonkeyPatch) -> None:
        self.stream = cw.Environment(checkpointing=None).read(cw.from_rows([], SCHEMA), uid="in").with_timestamps("ts")
        windowed = self.stream.key_by("k").window(cw.session("2ms"), allowed_lateness=lateness).agg(n=cw.count())
        operator = opened(windowed, backend)
        assert isinstance(operator, SessionWindows)
        self.operator = operator
        self.out = Collected()
        self._calls: dict[str, int] = {}
        for name in ("get", "put", "delete"):
            self._count(name, monkeypatch)

    def _count(self, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        method = getattr(self.operator._table, name)
        self._calls[name] = 0

        def counted(*args: Any) -> Any:
            self._calls[name] += 1
            return method(*args)

        monkeypatch.setattr(self.operator._table, name, counted)

    def feed(self, times: range) -> None:
        self.operator.process(batch_of([("k", time) for time in times], self.stream.schema, "test"), 0, self.out)

    def taken(self) -> tuple[int, int]:
        reads, writes = self._calls["get"], self._calls["put"] + self._calls["delete"]
        self._calls = dict.fromkeys(self._calls, 0)
        return reads, writes


def backend_of(kind: str, folder: Path) -> StateBackend:
    return cw.Memory() if kind == "memory" else cw.RocksDB(cache="8kB", local_directories=[str(folder)])


@pytest.mark.parametrize("kind", ["memory", "rocksdb"])
@pytest.mark.parametrize("lateness", ["0s", "1 day"])
def test_the_sessions_of_a_key_are_read_and_written_once_for_each_batch_and_step(
    kind: str, lateness: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    subject = Subject(lateness, backend_of(kind, tmp_path), monkeypatch)
    # New ones, the same longer, and others between them.
    for begin in (0, 1, 5):
        subject.feed(range(begin, 10 * SESSIONS // 2, 10))
        assert subject.taken() == (1, 1)
    steps = len(list(subject.operator.on_watermark(10 * SESSIONS, subject.out)))
    counts = [row[-1] for row in subject.out.taken()]
    assert counts == [2, 1] * (SESSIONS // 2)
    reads, writes = subject.taken()
    assert reads <= steps
    assert writes <= (steps if lateness == "0s" else 0)
    steps_to_forget = len(list(subject.operator.on_watermark(2 * 86_400_000, subject.out)))
    reads, writes = subject.taken()
    assert reads <= steps_to_forget and writes <= steps_to_forget
    assert steps + steps_to_forget <= MOST_STEPS
    assert list(subject.operator._table.items()) == []
    subject.operator.close()


def test_what_was_told_in_a_step_is_gone_at_its_end_though_others_of_the_key_are_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(session_windows, "SESSIONS_A_STEP", 3)
    subject = Subject("0s", cw.Memory(), monkeypatch)
    subject.feed(range(0, 100, 10))
    left = []
    for _ in subject.operator.on_watermark(1000, subject.out):
        kept = subject.operator._table.get("k") or []
        assert [each.start for each in kept] == [*range(0, 100, 10)][len(subject.out.rows()) :]
        left.append(len(kept))
    assert left == [7, 4, 1, 0]


class Counting(KeySessions):
    """How many of them were looked at."""

    looks = 0

    def _end_of(self, number: int) -> Milliseconds:
        Counting.looks += 1
        return super()._end_of(number)


def test_a_session_is_found_by_few_looks() -> None:
    sessions = Counting([KeyWindow(10 * n, 10 * n + 2, n) for n in range(1 << 12)])
    Counting.looks = 0
    [touched] = sessions.touched_by(20_001, 20_003)
    assert touched.content == 2000
    sessions.put(KeyWindow(20_000, 20_003, "longer"))
    assert sessions.at(20_002) == (20_000, 20_003, "longer")
    assert sessions.drop(20_002)
    assert 0 < Counting.looks <= 5 * 13


def test_sessions_stay_in_the_order_in_which_they_were_begun() -> None:
    """As a list that is gone through says it."""
    random = Random(1)
    for _ in range(200):
        plain: list[KeyWindow] = []
        sessions = KeySessions(None)
        for number in range(30):
            start = random.randrange(200)
            end = start + random.randint(1, 12)
            touched = [old for old in plain if old.start <= end and start <= old.end]
            assert sessions.touched_by(start, end) == touched
            new = KeyWindow(
                min(start, *(o.start for o in touched), start), max(end, *(o.end for o in touched), end), number
            )
            place = plain.index(touched[0]) if touched else len(plain)
            rest = [old for old in plain if old not in touched]
            plain = [*rest[:place], new, *rest[place:]]
            sessions.put(new)
            last = random.randrange(200)
            found = [each for each in plain if each.start <= last < each.end]
            assert sessions.at(last) == (found[0] if found else None)
            left = [each for each in plain if each.end - 1 != last]
            assert sessions.drop(last) is (len(left) < len(plain))
            plain = left
            assert sessions.stored() == plain
            if random.random() < 0.2:
                sessions = KeySessions([tuple(each) for each in plain])
