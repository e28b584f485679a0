"""At most once, at least once, exactly once: one failing job, three results.

    python examples/three_guarantees.py

Two web servers report visits; the job counts the views of each page, and its distinct visitors. In the middle everything
dies, a moment after a checkpoint. What the three modes make of it:

* at most once: nothing is read again. What was in flight is lost, and so is the state: counts are too low.
* at least once: nothing is lost. Barriers do not hold anything back, so visits that came behind one barrier and before the
  other are in the stored state and are read again: views are too high. Distinct visitors are still right: who was seen
  twice is still one visitor (the operation is idempotent).
* exactly once: both are right.

The run is a simulation in this process, with the same code that runs on Spark, because there one can choose the moment at
which to fail, and see the same result every time.
"""

import random
from collections import Counter

import polars as pl

import cutwater as cw
from cutwater.testing import ADVANCE, FAIL, TRIGGER, run, script

MODES = ("at_most_once", "at_least_once", "exactly_once")
PAGES = ("/home", "/cart")
VISITS = 300


def visits(server: int) -> list[tuple[str, str]]:
    chance = random.Random(server)
    return [(chance.choice(PAGES), f"visitor-{chance.randrange(12)}") for _ in range(VISITS)]


class Traffic(cw.KeyedProcess):
    """Per page: views, which count every visit, and visitors, which count everybody once."""

    views = cw.ValueState("long")
    seen = cw.MapState("string", "boolean")
    visitors = cw.ValueState("long")

    def process(self, row, ctx):
        self.views.value = (self.views.value or 0) + 1
        if row.visitor not in self.seen:
            self.seen[row.visitor] = True
            self.visitors.value = (self.visitors.value or 0) + 1
        yield (row.page, self.views.value, self.visitors.value)


def pipeline(env):
    """In production the servers would be files or topics; here a script stands for each."""
    server = [env.read(cw.from_rows([], "page string, visitor string"), uid=f"server-{n}") for n in (1, 2)]
    log = server[0].union(by_a_long_way(server[1]))
    traffic = log.key_by("page").process(Traffic(), "page string, views long, visitors long").uid("traffic")
    traffic.collect("traffic")


def by_a_long_way(stream):
    """Through four stages, each behind an exchange: barriers of the second server come well behind those of the first."""
    for stage in range(4):
        stream = stream.rebalance().filter(pl.col("page").is_not_null()).uid(f"stage-{stage}")
    return stream


def truth() -> dict[str, tuple[int, int]]:
    log = visits(1) + visits(2)
    views = Counter(page for page, _ in log)
    return {page: (views[page], len({who for where, who in log if where == page})) for page in PAGES}


def run_and_fail(mode: str, seed: int = 1) -> dict[str, tuple[int, int]]:
    """(views, visitors) of each page, after a run that began a checkpoint at 40 % of its way and died at 60 %.

    ``seed`` decides who comes first wherever two things could happen: a row of one server, or the barrier of the other.
    """
    first, second = visits(1), visits(2)
    begin, die = VISITS * 4 // 10, VISITS * 6 // 10
    inputs = {
        "server-1": script(first[:begin], TRIGGER, first[begin:die], FAIL, first[die:]),
        "server-2": script(second[:begin], ADVANCE("1s"), second[begin:]),  # quiet until the failure is over
    }
    env = cw.Environment(parallelism=1, checkpointing=cw.Checkpointing("1 day", storage="memory", mode=mode))
    rows = run(pipeline, inputs, environment=env, choose=random.Random(seed).randrange)["traffic"]
    # Counts are running: the last row of a page is its result.
    return {row.page: (row.views, row.visitors) for row in rows}


def main() -> None:
    print(f"{'':14}" + "".join(f"{page:>8} views  visitors" for page in PAGES))
    for name, result in (("truth", truth()), *((mode, run_and_fail(mode)) for mode in MODES)):
        print(f"{name:14}" + "".join(f"{result[page][0]:>14}  {result[page][1]:>8}" for page in PAGES))


if __name__ == "__main__":
    main()
