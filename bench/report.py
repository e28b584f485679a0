"""From single runs to a table that says what was reached: medians, ratios against the best peer, verdicts.

Pure: runs in, text out. A contestant that failed or was not installed stays in the table and says so.
"""

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from bench.workloads import Better, Bound, Contestant, Figure, TimesBestPeer, Workload


@dataclass(frozen=True, slots=True)
class Run:
    """One run of one contestant: the fields of its RESULT line, or why there is none."""

    workload: str
    contestant: str
    result: dict[str, object] | None
    failure: str = ""


@dataclass(frozen=True, slots=True)
class Measured:
    """One contestant's figure over all its runs."""

    contestant: Contestant
    median: float
    lowest: float
    highest: float
    count: int
    others_cores: float | None
    """The most cores that foreign processes kept busy during one of these runs; None when it was not recorded."""


@dataclass(frozen=True, slots=True)
class Missing:
    contestant: Contestant
    reason: str


@dataclass(frozen=True, slots=True)
class Reached:
    what: str


@dataclass(frozen=True, slots=True)
class Missed:
    what: str


@dataclass(frozen=True, slots=True)
class NotMeasured:
    what: str


Outcome = Reached | Missed | NotMeasured


@dataclass(frozen=True, slots=True)
class Standing:
    """How everybody did in one figure, and whether ours reached what it must."""

    workload: Workload
    figure: Figure
    rows: tuple[Measured | Missing, ...]
    must: Outcome
    goal: Outcome

    @property
    def ours(self) -> Measured | None:
        return next((row for row in self.rows if isinstance(row, Measured) and row.contestant.is_ours), None)

    @property
    def best_peer(self) -> Measured | None:
        peers = [row for row in self.rows if isinstance(row, Measured) and not row.contestant.is_ours]
        pick = max if self.figure.better is Better.HIGHER else min
        return pick(peers, key=lambda row: row.median) if peers else None


def stand(workload: Workload, runs: Sequence[Run]) -> list[Standing]:
    """Judges every figure of a workload. Never raises on missing runs: they become ``Missing`` and ``NotMeasured``."""
    standings = []
    for figure in workload.figures:
        rows = tuple(
            _measure(workload, contestant, figure, runs)
            for contestant in workload.contestants
            if contestant.baseline_of is None
        )
        bare = Standing(workload, figure, rows, NotMeasured(""), NotMeasured(""))
        must, goal = (judge(figure, bare.ours, bare.best_peer, wanted) for wanted in (figure.must, figure.goal))
        standings.append(Standing(workload, figure, rows, must, goal))
    return standings


def judge(figure: Figure, ours: Measured | None, best_peer: Measured | None, wanted: TimesBestPeer | Bound) -> Outcome:
    if ours is None:
        return NotMeasured("ours was not measured")
    match wanted:
        case Bound(limit):
            within = ours.median <= limit if figure.better is Better.LOWER else ours.median >= limit
            word = "at most" if figure.better is Better.LOWER else "at least"
            text = f"{number(ours.median)} {figure.unit}, {word} {number(limit)} wanted"
        case TimesBestPeer(factor):
            if best_peer is None:
                return NotMeasured("no peer was measured")
            ratio = times_as_good(figure, ours, best_peer)
            within = ratio >= factor
            text = f"{number(ratio)} times {best_peer.contestant.name}, {number(factor)} wanted"
    return Reached(text) if within else Missed(text)


def times_as_good(figure: Figure, ours: Measured, peer: Measured) -> float:
    """Above 1: ours is better, in whichever direction better lies."""
    if figure.better is Better.HIGHER:
        return ours.median / peer.median if peer.median else float("inf")
    return peer.median / ours.median if ours.median else float("inf")


def markdown(standings: Iterable[Standing], *, machine: Sequence[str], plot: str | None) -> str:
    standings = list(standings)
    lines = ["# Ours and the peers, one run, one machine", ""]
    lines += [f"* {fact}" for fact in machine]
    lines += [
        "",
        "Only the ratios of one such run count: absolute figures move by a factor of two between machines.",
        "",
    ]
    lines += ["| workload | figure | must | goal |", "| --- | --- | --- | --- |"]
    lines += [
        f"| {item.workload.id} | {item.figure.title} | {outcome(item.must)} | {outcome(item.goal)} |"
        for item in standings
    ]
    if plot:
        lines += ["", f"![ratios]({plot})"]
    for item in standings:
        lines += ["", f"## {item.workload.id}: {item.figure.title}", "", _sentence(item.workload.title), ""]
        lines += _table(item)
    return "\n".join(lines) + "\n"


def outcome(value: Outcome) -> str:
    match value:
        case Reached(what):
            return f"**reached**: {what}"
        case Missed(what):
            return f"**missed**: {what}"
        case NotMeasured(what):
            return f"not measured: {what}"


def number(value: float) -> str:
    """Three significant figures, thousands set apart."""
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def _table(item: Standing) -> list[str]:
    lines = [
        f"| contestant | {item.figure.unit} (median) | lowest to highest | runs | ours is better by | others busy | remark |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in item.rows:
        match row:
            case Missing(contestant, reason):
                lines.append(f"| {contestant.name} | not measured | | 0 | | | {reason} |")
            case Measured(contestant):
                ratio = ""
                if item.ours is not None and not contestant.is_ours and not item.figure.against_baseline:
                    ratio = f"{number(times_as_good(item.figure, item.ours, row))} x"
                busy = "" if row.others_cores is None else f"{row.others_cores:.2f} cores"
                lines.append(
                    f"| {contestant.name} | {number(row.median)} | {number(row.lowest)} to {number(row.highest)} "
                    f"| {row.count} | {ratio} | {busy} | {contestant.remark} |"
                )
    return lines


def _measure(workload: Workload, contestant: Contestant, figure: Figure, runs: Sequence[Run]) -> Measured | Missing:
    own = [run for run in runs if run.workload == workload.id and run.contestant == contestant.name]
    values = _values(figure, own)
    if not values:
        reasons = [run.failure for run in own if run.failure]
        return Missing(contestant, reasons[-1] if reasons else "this figure is not among its results")
    paired = [value for run in own if (value := _number((run.result or {}).get("cost_percent"))) is not None]
    if figure.against_baseline and paired:
        values = paired  # taken in one process, where the two sides alternate
    elif figure.against_baseline:
        baseline = [c.name for c in workload.contestants if c.baseline_of == contestant.name]
        free = _values(figure, [run for run in runs if run.workload == workload.id and run.contestant in baseline])
        if not free:
            return Missing(contestant, "it was not run without checkpoints")
        values = [(statistics.median(free) / value - 1) * 100 for value in values]
    recorded = [_number((run.result or {}).get("others_cores")) for run in own]
    busy = [cores for cores in recorded if cores is not None]
    return Measured(
        contestant, statistics.median(values), min(values), max(values), len(values), max(busy) if busy else None
    )


def _values(figure: Figure, runs: Sequence[Run]) -> list[float]:
    """One value per run that has the figure, under the first of its names that is there."""
    found = []
    for run in runs:
        named = (_number((run.result or {}).get(key)) for key in figure.keys)
        value = next((value for value in named if value is not None), None)
        if value is not None:
            found.append(value)
    return found


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + "."
