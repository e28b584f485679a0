"""One picture: how many times better ours is than each peer, on a logarithmic axis."""

from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure as Picture

from bench.report import Measured, Standing, number, times_as_good
from bench.workloads import TimesBestPeer

mpl.use("Agg")


def draw(standings: Sequence[Standing], path: Path) -> bool:
    """Writes the picture. False when there is nothing to compare yet, and then writes nothing."""
    bars: list[tuple[str, float, float | None]] = []
    for item in standings:
        if item.ours is None or item.figure.against_baseline:
            continue
        must = item.figure.must.factor if isinstance(item.figure.must, TimesBestPeer) else None
        for row in item.rows:
            if isinstance(row, Measured) and not row.contestant.is_ours:
                label = f"{item.workload.id} {item.figure.title}\n{row.contestant.name}"
                bars.append((label, times_as_good(item.figure, item.ours, row), must))
    bars = [bar for bar in bars if 0 < bar[1] < float("inf")]
    if not bars:
        return False
    picture = Picture(figsize=(9, 1 + 0.55 * len(bars)), layout="constrained")
    axes = picture.subplots()
    places = range(len(bars))
    colours = ["#2a6f97" if ratio >= 1 else "#bc4749" for _, ratio, _ in bars]
    # Bars begin at 1, not at the edge: on a logarithmic axis the edge is arbitrary, and 1 is where both are equal.
    axes.barh(places, [ratio - 1 for _, ratio, _ in bars], left=1, color=colours, height=0.6)
    for place, (_, ratio, must) in enumerate(bars):
        axes.text(max(ratio, 1) * 1.05, place, f"{number(ratio)} x", va="center", fontsize=8)
        if must is not None:
            axes.plot([must, must], [place - 0.4, place + 0.4], color="black", linewidth=1)
    axes.set_xscale("log")
    axes.axvline(1, color="grey", linewidth=0.8)
    axes.set_yticks(list(places), [label for label, _, _ in bars], fontsize=8)
    axes.invert_yaxis()
    axes.margins(x=0.15)
    axes.set_xlabel("times better than the peer (1 = equal; black mark: what we must reach)")
    picture.savefig(path, dpi=120)
    return True
