"""When RocksDB joins its runs: what it wrote at once, or has joined. A read looks into one after the other.

What is joined is new to the next checkpoint, which stores it once more. So runs are joined early as long as no checkpoint has
them, and the first one finds few and large ones; later those that bring few changes stay beside the others for long.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import rocksdict

MOST_EXCESS = 2
"""Times what the state has: so much more there may be, as nearly all of it may be replaced by now, until all become one run."""
FILES = "rocksdb.sstables"
"""The property that ``runs_of`` understands."""
_LEVEL = "--- level "
_SIZE = re.compile(r"^ \d+:(\d+)\[", re.MULTILINE)
JOINED_RUNS = 24
"""So many at most, unless it is all: those of as many checkpoints, if little changes between them."""
_SLOWER, _STOPPED = 12, 28
"""Writing waits when there are so many more runs than are joined: RocksDB is too slow."""


@dataclass(frozen=True, slots=True)
class Joining:
    """From so many ``runs`` on, RocksDB joins the newest ones up to one that is larger than they are together; or all, if those
    above the oldest have ``excess`` percent of its size."""

    runs: int
    excess: int

    def tell(self, options: Any) -> None:
        """To be opened with."""
        styled = rocksdict.UniversalCompactOptions()
        styled.max_merge_width = JOINED_RUNS
        styled.max_size_amplification_percent = self.excess
        options.set_compaction_style(rocksdict.DBCompactionStyle.universal())
        options.set_universal_compaction_options(styled)
        options.set_level_zero_file_num_compaction_trigger(self.runs)
        options.set_level_zero_slowdown_writes_trigger(self.runs + _SLOWER)
        options.set_level_zero_stop_writes_trigger(self.runs + _STOPPED)

    def slows_down(self, runs: int) -> bool:
        """Whether RocksDB holds a flush back until fewer of so many runs are left, or the link behind it, which flushes too."""
        return runs + 2 >= self.runs + _SLOWER

    def changed(self) -> dict[str, str]:
        """The same for a state that is open."""
        styled = f"max_merge_width={JOINED_RUNS};max_size_amplification_percent={self.excess}"
        return {
            "compaction_options_universal": f"{{{styled}}}",
            "level0_file_num_compaction_trigger": str(self.runs),
            "level0_slowdown_writes_trigger": str(self.runs + _SLOWER),
            "level0_stop_writes_trigger": str(self.runs + _STOPPED),
        }


EARLY = Joining(runs=8, excess=50)
"""Until the first checkpoint."""
LATE = Joining(runs=EARLY.runs + JOINED_RUNS, excess=100 * MOST_EXCESS)


def joining_of(runs: Sequence[int], whole: float) -> Joining:
    """For a state that is in checkpoints, by the sizes of its runs. It has ``whole`` bytes, or as many as the largest of them.

    RocksDB itself asks how much there is too much only where there are many runs."""
    return EARLY if sum(runs) > (1 + MOST_EXCESS) * max(whole, *runs, 0) else LATE


def runs_of(files: str) -> list[int]:
    """The sizes of a state's runs, from what RocksDB tells of its files. Those of the first level are one each, those of a deeper
    one are one together."""
    runs: list[int] = []
    for level in files.split(_LEVEL)[1:]:
        sizes = [int(size) for size in _SIZE.findall(level)]
        if level.startswith("0 "):
            runs += sizes
        elif sizes:
            runs.append(sum(sizes))
    return runs
