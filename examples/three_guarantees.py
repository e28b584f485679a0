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
from datetime import timedelta

import pyarrow as pa

import cutwater as cw
from cutwater.checkpoint.events import ManualTriggerRequested, RequestId
from cutwater.checkpoint.job_store import JobStore
from cutwater.checkpoint.memory_storage import MemoryStorage
from cutwater.testing.clock import ManualClock
from cutwater.testing.simulation import Simulation

MODES = ("at_most_once", "at_least_once", "exactly_once")
PAGES = ("/home", "/cart")
VISITS = 300
VISIT = pa.schema([("page", pa.string()), ("visitor", pa.string())])


def visits(server: int) -> list[tuple[str, str]]:
    chance = random.Random(server)
    return [(chance.choice(PAGES), f"visitor-{chance.randrange(12)}") for _ in range(VISITS)]


class Server(cw.Source):
    """A log of visits that hands them out one by one. It can be read again from any position."""

    schema = VISIT

    def __init__(self, number: int) -> None:
        self.number = number

    def splits(self):
        return [self.number]

    def open(self, split, position, ctx):
        return LogReader(visits(split), position or 0)


class LogReader(cw.SplitReader):
    def __init__(self, log, at) -> None:
        self.log, self.at = log, at

    def next_batch(self, max_rows: int, timeout: timedelta):
        if self.at == len(self.log):
            return cw.END
        page, visitor = self.log[self.at]
        self.at += 1
        return pa.RecordBatch.from_pylist([{"page": page, "visitor": visitor}], schema=VISIT)

    def position(self):
        return self.at


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
    log = env.read(Server(1), uid="server-1").union(env.read(Server(2), uid="server-2"))
    traffic = log.key_by("page").process(Traffic(), "page string, views long, visitors long").uid("traffic")
    traffic.collect("traffic")


def truth() -> dict[str, tuple[int, int]]:
    log = visits(1) + visits(2)
    views = Counter(page for page, _ in log)
    return {page: (views[page], len({who for where, who in log if where == page})) for page in PAGES}


def begun(mode: str, seed: int) -> Simulation:
    env = cw.Environment(parallelism=1, checkpointing=cw.Checkpointing("1 day", storage="memory", mode=mode))
    pipeline(env)
    order = random.Random(seed)
    store = JobStore(MemoryStorage(1 << 20), "traffic")
    return Simulation(env.define("traffic", 1), store, ManualClock(), order.randrange)


def run_to_end(simulation: Simulation) -> int:
    """How many steps it took."""
    steps = 0
    while not simulation.finished:
        if simulation.step():
            steps += 1
        else:
            simulation.advance_to_next_timer()
    return steps


def run_and_fail(mode: str, seed: int = 1) -> dict[str, tuple[int, int]]:
    """(views, visitors) of each page, after a run that took a checkpoint at 40 % of its way and died at 60 %."""
    whole_way = run_to_end(begun(mode, seed))
    simulation = begun(mode, seed)
    for step in range(whole_way * 6 // 10):
        if step == whole_way * 4 // 10:
            simulation.driver.handle(ManualTriggerRequested(RequestId(1)))
        simulation.step()
    simulation.crash()
    run_to_end(simulation)
    return last_rows(simulation.store.collected("collect-traffic"))


def last_rows(parts: list[bytes]) -> dict[str, tuple[int, int]]:
    """Counts are running: the last row of a page is its result."""
    rows = {}
    for part in parts:
        with pa.ipc.open_stream(part) as reader:
            for row in reader.read_all().to_pylist():
                rows[row["page"]] = (row["views"], row["visitors"])
    return rows


def main() -> None:
    print(f"{'':14}" + "".join(f"{page:>8} views  visitors" for page in PAGES))
    for name, result in (("truth", truth()), *((mode, run_and_fail(mode)) for mode in MODES)):
        print(f"{name:14}" + "".join(f"{result[page][0]:>14}  {result[page][1]:>8}" for page in PAGES))


if __name__ == "__main__":
    main()
