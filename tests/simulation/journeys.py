"""Jobs that die again and again and go on at another parallelism each time, from checkpoints that hold rows in flight."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import cutwater as cw
from cutwater.checkpoint.memory_storage import MemoryStorage
from cutwater.checkpoint.start import StartFresh
from cutwater.checkpoint.statistics import CheckpointStatus
from cutwater.flow.ids import SubtaskId
from cutwater.state.operator_states import BroadcastHandle
from tests.simulation.topologies import RECORD, TOPOLOGIES, Count, Numbers, Records, Topology
from tests.simulation.world import Setting, World, run_to_the_end

SIZE, SLIDE = 4, 2


class CountBoth(cw.CoProcess):
    """Numbers the records of each key, whichever input they came by."""

    seen = cw.ValueState("long")

    def process_left(self, row: Any, ctx: Any) -> Any:
        self.seen.value = (self.seen.value or 0) + 1
        yield (*tuple(row)[:5], self.seen.value)

    process_right = process_left


class Follow(cw.BroadcastProcess):
    """Numbers the records of each key, and remembers how far each split of the other stream has come: a record of that which is
    lost, repeated or overtaken is noticed by the next one."""

    seen = cw.ValueState("long")
    latest = cw.BroadcastState("int", "long")

    def process(self, row: Any, ctx: Any) -> Any:
        self.seen.value = (self.seen.value or 0) + 1
        yield (*tuple(row)[:5], self.seen.value)

    def process_broadcast(self, row: Any, ctx: Any) -> Any:
        before = self.latest.get(row.split, -1)
        assert row.v == before + 1, f"record {row.v} of split {row.split} came behind {before}"
        self.latest[row.split] = row.v


class Alarm(cw.KeyedProcess):
    """A timer at the time of every record, which it tells when that fires."""

    def process(self, row: Any, ctx: Any) -> Any:
        late = ctx.watermark is not None and row.v <= ctx.watermark
        assert not late, f"record {row.v} met the watermark {ctx.watermark}"
        ctx.timers.event_time(row.v)

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        yield ctx.key, timestamp


def _multi_input(a: cw.Stream, b: cw.Stream) -> None:
    both = a.key_by("k").connect(b.key_by("k")).process(CountBoth, RECORD).uid("both")
    both.key_by("j").process(Count, RECORD).uid("again").collect("out")


def _rules(a: cw.Stream, b: cw.Stream) -> None:
    a.key_by("k").connect(b.broadcast()).process(Follow, RECORD).uid("rules").collect("out")


def _skewed(a: cw.Stream) -> None:
    mostly_one = a.map(lambda row: (*tuple(row)[:3], 0 if row.v % 5 else row.k, row.j, 0), RECORD).uid("skew")
    mostly_one.key_by("k").process(Count, RECORD).uid("count").collect("out")


def _windows(a: cw.Stream) -> None:
    timed = a.with_timestamps("v").uid("timed")
    sliding = timed.key_by("k").window(cw.sliding(f"{SIZE}ms", f"{SLIDE}ms"))
    sliding.agg(n=cw.count()).uid("panes").collect("panes")
    sliding.process(Counted, "k long, n long").uid("contents").collect("contents")
    patient = timed.key_by("k").window(cw.tumbling(f"{SIZE}ms"), allowed_lateness="1h")
    patient.agg(n=cw.count()).uid("patient").collect("patient")


def _sliding(a: cw.Stream) -> None:
    timed = a.with_timestamps("v").uid("timed")
    timed.key_by("k").window(cw.sliding(f"{SIZE}ms", f"{SLIDE}ms")).agg(n=cw.count()).uid("panes").collect("panes")


def _near(a: cw.Stream, b: cw.Stream) -> None:
    left, right = (each.with_timestamps("v").uid(f"timed {name}").key_by("k") for name, each in (("a", a), ("b", b)))
    left.join(right, within="1ms").uid("near").collect("out")


def _timers(a: cw.Stream) -> None:
    timed = a.with_timestamps("v").uid("timed")
    timed.key_by("k").process(Alarm, "k long, v long").uid("alarm").collect("out")


@dataclass(frozen=True, slots=True)
class WindowCounts:
    """Every window of every key once, with the records that are in it. ``repeats``: perhaps several times, and always so."""

    slide: int
    repeats: bool = False

    def exactly_once(self, rows: Sequence[Any], sources: Sequence[Numbers]) -> None:
        expected: Counter[tuple[int, int]] = Counter()
        for record in (record for source in sources for record in source.records()):
            first = (record[2] // self.slide) * self.slide
            for start in range(first, first - SIZE, -self.slide):
                expected[record[3], start] += 1
        found = [(row.k, round(row.window_start.timestamp() * 1000), row.n) for row in rows]
        told = Counter(set(found) if self.repeats else found)
        assert told == Counter((k, start, n) for (k, start), n in expected.items())


@dataclass(frozen=True, slots=True)
class Alarms:
    """Each time of each key once."""

    def exactly_once(self, rows: Sequence[Any], sources: Sequence[Numbers]) -> None:
        expected = {(record[3], record[2]) for source in sources for record in source.records()}
        assert Counter(map(tuple, rows)) == Counter(expected)


@dataclass(frozen=True, slots=True)
class NearPairs:
    """Each pair of records of a key whose times are at most one apart, once."""

    def exactly_once(self, rows: Sequence[Any], sources: Sequence[Numbers]) -> None:
        left, right = (source.records() for source in sources)
        expected = Counter(
            (a[1], a[2], b[1], b[2]) for a in left for b in right if a[3] == b[3] and abs(a[2] - b[2]) <= 1
        )
        assert Counter((row.split, row.v, row.split_right, row.v_right) for row in rows) == expected


class Counted(cw.WindowProcess):
    def process(self, rows: Any, ctx: Any) -> Any:
        yield ctx.key, len(list(rows))


MORE: Mapping[str, Topology] = {
    topology.name: topology
    for topology in (
        Topology("multi input", _multi_input, lambda p: {"out": Records("j", ordered=False)}, sources=2),
        Topology("rules", _rules, lambda p: {"out": Records("k", sources="a")}, sources=2),
        Topology("skewed", _skewed, lambda p: {"out": Records("k")}),
        Topology(
            "windows",
            _windows,
            lambda p: {  # type: ignore[dict-item]
                "panes": WindowCounts(SLIDE),
                "contents": WindowCounts(SLIDE),
                "patient": WindowCounts(SIZE, repeats=True),
            },
        ),
        Topology("sliding", _sliding, lambda p: {"panes": WindowCounts(SLIDE)}),  # type: ignore[dict-item]
        Topology("near", _near, lambda p: {"out": NearPairs()}, sources=2),  # type: ignore[dict-item]
        Topology("timers", _timers, lambda p: {"out": Alarms()}),  # type: ignore[dict-item]
    )
}


@dataclass(frozen=True, slots=True)
class Journey(Setting):
    """``path``: the parallelism of each stage. ``troubles``: how often user code fails in a stage, besides the crashes."""

    path: tuple[int, ...] = (3, 5)
    troubles: int = 0

    @property
    def shape(self) -> Topology:
        return MORE.get(self.topology) or TOPOLOGIES[self.topology]


class Trouble(Exception):
    """Raised on purpose by what stands for user code."""


class TroubledWorld(World):
    """Operators fail now and then while they process, while they are snapshotted, opened and closed; then a new attempt begins."""

    def __init__(self, setting: Journey, resume: MemoryStorage | None = None, seed: int | None = None) -> None:
        self.troubles = setting.troubles
        self.failed: Counter[str] = Counter()
        super().__init__(setting, resume, seed)
        self.replays = sum(bool(running._state.in_flight) for running in self.subtasks.values())
        """How many subtasks began with rows that the restored checkpoint had overtaken."""

    def start_attempt(self, start: StartFresh | None = None) -> None:
        while True:
            try:
                return super().start_attempt(start)
            except Trouble:
                start = None

    def _deploy(self, subtask: SubtaskId, level: int, partition: int) -> None:
        super()._deploy(subtask, level, partition)
        self._perhaps_fail("restore", 0.1)
        running = self.subtasks[subtask]
        running._slice = self._failing("processing", 0.02, running._slice)  # type: ignore[method-assign]
        running._chain.snapshot = self._failing("snapshot", 0.1, running._chain.snapshot)  # type: ignore[method-assign]

    def _failing(self, where: str, how_likely: float, work: Callable[..., Any]) -> Callable[..., Any]:
        def failing(*args: Any) -> Any:
            done = work(*args)
            self._perhaps_fail(where, how_likely)
            return done

        return failing

    def _perhaps_fail(self, where: str, how_likely: float) -> None:
        if self.troubles and not self.calm and self.random.random() < how_likely:
            self.troubles -= 1
            self.failed[where] += 1
            raise Trouble(where)

    def step(self) -> bool:
        try:
            return super().step()
        except Trouble:
            self.crash()
            return True

    def close(self) -> None:
        for running in self.subtasks.values():
            running.close()
        super().close()

    def judge(self) -> None:
        super().judge()
        if self.setting.topology == "rules":
            rules = self.sources[-1]
            everything = dict.fromkeys(rules.splits(), rules.rows - 1)
            for subtask, running in self.subtasks.items():
                if "rules" in running._chain._operators:
                    latest = running._chain._operators["rules"].fn.latest  # type: ignore[attr-defined]
                    assert isinstance(latest, BroadcastHandle)
                    assert dict(latest) == everything, f"{subtask} was told {dict(latest)}"


def travel(journey: Journey) -> list[TroubledWorld]:
    """Every stage but the last dies soon after a checkpoint; the last one ends, fails when it closes, and ends once more."""
    worlds: list[TroubledWorld] = []
    storage: MemoryStorage | None = None
    for number, parallelism in enumerate(journey.path):
        here = replace(journey, parallelism=parallelism)
        world = TroubledWorld(here, storage, seed=journey.seed * 101 + number)
        worlds.append(world)
        if number < len(journey.path) - 1:
            run_to_the_end(world, until=_after(world, world.random.choice((1, 1, 2))))
            world.driver.end("crash")
            world.close()
            storage = world.store.storage  # type: ignore[assignment]
    last = worlds[-1]
    run_to_the_end(last)
    last.judge()
    last.crash()
    run_to_the_end(last)
    last.judge()
    return worlds


def _after(world: World, checkpoints: int) -> Callable[[], bool]:
    """That many of this stage hold rows in flight, the latest among them, and a little more happened."""
    some = world.random.randrange(8)

    def dies() -> bool:
        held = [info.in_flight_bytes > 0 for info in world.ended if info.status is CheckpointStatus.COMPLETED]
        return sum(held) >= checkpoints and held[-1] and world.since_completed >= some

    return dies
