"""One pipeline with every kind of state, timer, window and join, and what a plain computation over all records makes of it.

Orders and payments are numbers made into records by arithmetic, so that whoever computes the truth needs no input but a count.
Records come out of order, but never behind the watermark (except where late ones are wanted): every result is determined, at any
parallelism and over any failure.
Where what is told depends on when it is told (the clock, who has seen what), `told` adds it up to what does not.
"""

import itertools
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

import cutwater as cw

BACKENDS: Mapping[str, cw.StateBackend] = {
    "memory": cw.Memory(),
    "memory, incremental": cw.Memory(incremental=True),
    "rocksdb": cw.RocksDB(cache="8kB"),
    "rocksdb, incremental": cw.RocksDB(incremental=True, cache="8kB"),
}
"""Every backend that the pipeline is run on, by the name that tests give it. The one place to add one."""

CUSTOMERS = 23
PERIOD, SLIDING, SLIDE, SESSION_GAP, SHARED_WINDOW, NEAR, OFFSET = 200, 300, 100, 36, 100, 40, 70
NARROW, LATENESS, BEHIND, FAR_BEHIND = 20, 40, 60, 250
"""All in milliseconds."""
AT_THE_END = 10**9
"""Later than every record, and earlier than every clock: event-time timers set for it fire when all input has ended."""
RULES = [(customer, customer % 5 + 1) for customer in range(CUSTOMERS)]
CLOCK_STEP, FORGOTTEN = 50, 500
RESIDUES = 7
NUMBER = pa.schema([pa.field("value", pa.int64(), nullable=False)])
SPLITS, BATCH = 3, 200


@dataclass(frozen=True, slots=True)
class Order:
    id: int
    customer: int | None
    item: int
    amount: int
    ts: int


@dataclass(frozen=True, slots=True)
class Payment:
    number: int
    payer: int | None
    thing: int
    ts: int


@dataclass(frozen=True)
class Numbers(cw.Source):
    """0 to ``count``, in three splits whatever the parallelism. With a ``gate``: slowly, and the last third only when it exists."""

    count: int
    gate: Path | None = None

    schema = NUMBER

    def splits(self) -> list[int]:
        return list(range(SPLITS))

    def open(self, split: int, position: int | None, ctx: Any) -> "NumbersReader":
        return NumbersReader(self, split if position is None else position)


class NumbersReader(cw.SplitReader):
    def __init__(self, source: Numbers, first: int) -> None:
        self._source = source
        self._next = first

    def next_batch(self, max_rows: int, timeout: timedelta) -> Any:
        count, gate = self._source.count, self._source.gate
        if self._next >= count:
            return cw.END
        if gate is not None:
            time.sleep(timeout.total_seconds())
            if self._next > count * 2 // 3 and not gate.exists():
                return None
        end = min(count, self._next + SPLITS * min(max_rows, BATCH))
        values = np.arange(self._next, end, SPLITS)
        self._next += SPLITS * len(values)
        return pa.record_batch([pa.array(values)], schema=NUMBER)

    def position(self) -> int:
        return self._next


# --- records: the same arithmetic for one number, and for columns ------------------------------------------------------


def time_of(value: Any) -> Any:
    """A record every millisecond, up to 8 ms out of order, and a pause of 40 ms now and then, in which sessions end."""
    return value - value * 7 % 5 * 2 + value // 100 * 40


OUT_OF_ORDER = "10ms"


def late_time() -> pl.Expr:
    """One order in ten comes after its window, and one after the time allowed for that; whether it is late depends on what
    else has come."""
    tens = pl.col("id") % 10
    return pl.col("ts") - pl.when(tens == 9).then(FAR_BEHIND).when(tens == 4).then(BEHIND).otherwise(0)


def columns_of_orders() -> dict[str, pl.Expr]:
    value = pl.col("value")
    return {
        "id": value,
        "customer": pl.when(value % 50 != 7).then(value * 7 % CUSTOMERS),
        "item": value // 2,
        "amount": value * value % 101,
        "ts": time_of(value),
    }


def columns_of_payments() -> dict[str, pl.Expr]:
    value = pl.col("value")
    return {
        "number": value,
        "payer": pl.when(value % 40 != 3).then(value * 5 % CUSTOMERS),
        "thing": value // 3,
        "ts": time_of(value) + 3,
    }


def orders(count: int) -> list[Order]:
    return [Order(n, n * 7 % CUSTOMERS if n % 50 != 7 else None, n // 2, n * n % 101, time_of(n)) for n in range(count)]


def payments(count: int) -> list[Payment]:
    return [Payment(n, n * 5 % CUSTOMERS if n % 40 != 3 else None, n // 3, time_of(n) + 3) for n in range(count)]


# --- functions -----------------------------------------------------------------------------------------------------------


class Ledger(cw.KeyedProcess):
    """All five kinds of state by key, and timers of both kinds.

    A row for each customer and period when it is over, and one at the end; beside them, whenever the clock says so, how many
    orders of the customer came since the last time.
    """

    schema = "customer long, at long, n long, ids long, highest long, total long, mean double"
    by_the_clock = cw.SideOutput("by_the_clock", "customer long, n long, at_the_end boolean")
    visits = cw.SideOutput("visits", "customer long, number long, lately long, began long, ended long")

    highest = cw.ValueState("long", ttl="1 day")
    running = cw.ListState("struct<id:long,ts:long>")
    periods = cw.MapState("long", "long")
    untold = cw.ReducingState("long", lambda count, more: count + more)
    mean = cw.AggregatingState(
        "struct<n:long,total:long>",
        create=lambda: (0, 0),
        add=lambda sums, amount: (sums[0] + 1, sums[1] + amount),
        result=lambda sums: sums[1] / sums[0],
    )
    total = cw.ReducingState("long", lambda total, amount: total + amount)
    visited = cw.ValueState("long")
    lately = cw.ValueState("long", ttl=f"{FORGOTTEN}ms")

    def process(self, row: Any, ctx: Any) -> None:
        self._visit(ctx)
        self.highest.value = max(self.highest.value or 0, row.amount)
        end = row.ts // PERIOD * PERIOD + PERIOD
        self.running.append((row.id, row.ts))
        self.periods[end] = self.periods.get(end, 0) + 1
        self.total.add(row.amount)
        self.mean.add(row.amount)
        self.untold.add(1)
        ctx.timers.event_time(end - 1)
        ctx.timers.event_time(AT_THE_END)
        ctx.timers.processing_time(ctx.now // CLOCK_STEP * CLOCK_STEP + CLOCK_STEP)

    def _visit(self, ctx: Any) -> None:
        """The clock is read before and after: it may tick in between."""
        began = ctx.now
        self.visited.value = number = (self.visited.value or 0) + 1
        self.lately.value = lately = (self.lately.value or 0) + 1
        ctx.emit(self.visits, (ctx.key, number, lately, began, ctx.now))

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Any]:
        if timestamp == AT_THE_END:
            self._tell_count(ctx, at_the_end=True)
            left = len(self.running) + len(self.periods)
            yield ctx.key, timestamp, left, 0, self.highest.value, self.total.value, self.mean.value
        elif timestamp < AT_THE_END:
            yield self._period_over(timestamp, ctx.key)
        else:
            self._tell_count(ctx, at_the_end=False)

    def _period_over(self, last: int, customer: int | None) -> Any:
        over = [each.id for each in self.running if each.ts <= last]
        rest = [each for each in self.running if each.ts > last]
        self.running.clear()
        self.running.extend(rest)
        count = self.periods[last + 1]
        del self.periods[last + 1]
        return customer, last, count, sum(over), None, None, None

    def _tell_count(self, ctx: Any, *, at_the_end: bool) -> None:
        if self.untold.value is not None:
            ctx.emit(self.by_the_clock, (ctx.key, self.untold.value, at_the_end))
            self.untold.clear()


class Visit(cw.WindowProcess):
    schema = "customer long, n long, amount long"

    def process(self, rows: list[Any], ctx: Any) -> Iterator[Any]:
        yield ctx.key, len(rows), sum(row.amount for row in rows)


class Spread(cw.AggregateFunction):
    """How far amounts are apart, and the sum of their ids: of merging twice or never, one of them tells."""

    accumulator_type = "struct<low:long,high:long,ids:long>"
    result_type = "struct<spread:long,ids:long>"

    def create(self) -> Any:
        return 10**9, -1, 0

    def add(self, accumulator: Any, row: Any) -> Any:
        low, high, ids = accumulator
        return min(low, row.amount), max(high, row.amount), ids + row.id

    def merge(self, a: Any, b: Any) -> Any:
        return min(a.low, b.low), max(a.high, b.high), a.ids + b.ids

    def result(self, accumulator: Any) -> Any:
        low, high, ids = accumulator
        return high - low, ids


class Accounts(cw.CoProcess):
    """Orders and payments of a customer in each period, told when it is over."""

    schema = "customer long, period long, orders long, payments long"

    periods = cw.MapState("long", "struct<orders:long,payments:long>")

    def process_left(self, row: Any, ctx: Any) -> None:
        self._add(row.ts, ctx, 1, 0)

    def process_right(self, row: Any, ctx: Any) -> None:
        self._add(row.ts, ctx, 0, 1)

    def _add(self, ts: int, ctx: Any, orders: int, payments: int) -> None:
        period = ts // PERIOD * PERIOD
        before = self.periods.get(period, (0, 0))
        self.periods[period] = (before[0] + orders, before[1] + payments)
        ctx.timers.event_time(period + PERIOD - 1)

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Any]:
        period = timestamp + 1 - PERIOD
        yield ctx.key, period, *self.periods[period]
        del self.periods[period]


class Weighted(cw.BroadcastProcess):
    """Amounts by the factor of their customer. Rules are from the beginning of time, so that no timer fires before the last of
    them is known."""

    schema = "id long, weighted long"

    factors = cw.BroadcastState("long", "long")
    waiting = cw.ListState("struct<id:long,amount:long>")

    def process(self, row: Any, ctx: Any) -> None:
        self.waiting.append((row.id, row.amount))
        ctx.timers.event_time(row.ts // PERIOD * PERIOD + PERIOD)

    def process_broadcast(self, row: Any, ctx: Any) -> None:
        self.factors[row.customer] = row.factor

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Any]:
        factor = 0 if ctx.key is None else self.factors[ctx.key]
        for each in self.waiting:
            yield each.id, each.amount * factor
        self.waiting.clear()


class Numbered(cw.Process):
    """Numbers the orders that each subtask sees, and tells of each residue that it had not seen yet."""

    schema = "subtask long, number long, new long"

    numbers = cw.ListOperatorState("long")
    seen = cw.UnionOperatorState("struct<subtask:long, residue:long>")

    def open(self, ctx: Any) -> None:
        mine = [each for each in self.seen if each.subtask == ctx.subtask]
        self.seen.clear()
        self.seen.extend(mine)

    def process(self, row: Any, ctx: Any) -> Iterator[Any]:
        number = sum(self.numbers) + 1
        self.numbers.clear()
        self.numbers.append(number)
        residue = row.id % RESIDUES
        new = residue not in {each.residue for each in self.seen}
        if new:
            self.seen.append((ctx.subtask, residue))
        yield ctx.subtask, number, residue if new else None


def summed(reduced: Any, row: Any) -> Any:
    return (
        reduced.id + row.id,
        row.customer,
        max(reduced.item, row.item),
        reduced.amount + row.amount,
        max(reduced.ts, row.ts),
    )


# --- the pipeline --------------------------------------------------------------------------------------------------------


def pipeline(env: cw.Environment, count: int, gate: Path | None = None) -> None:
    """Each result is collected under its name; the sources are ``orders``, ``payments`` and ``rules``."""
    unordered = env.read(Numbers(count, gate), uid="orders").select(**columns_of_orders())
    ordered = unordered.with_timestamps("ts", out_of_orderness=OUT_OF_ORDER)
    paid = env.read(Numbers(count, gate), uid="payments").select(**columns_of_payments())
    paid = paid.with_timestamps("ts", out_of_orderness=OUT_OF_ORDER)
    rules = env.read(cw.from_rows(RULES, "customer long, factor long"), uid="rules", parallelism=1)
    rules = rules.with_columns(ts=pl.lit(0, pl.Int64)).with_parallelism(1).with_timestamps("ts").with_parallelism(1)
    by_customer, by_payer = ordered.key_by("customer"), paid.key_by("payer")
    some_late = unordered.with_columns(ts=late_time()).with_timestamps("ts", out_of_orderness=OUT_OF_ORDER)
    # Which record is the last to come is open, but not the last slide that has one.
    with_slide = ordered.with_columns(slide=pl.col("ts") // SLIDE).key_by("customer")
    results: dict[str, cw.Stream] = {
        "ledger": by_customer.process(Ledger(), Ledger.schema),
        "tumbling": by_customer.window(cw.tumbling(f"{PERIOD}ms", offset=f"{OFFSET}ms")).agg(
            n=cw.count(),
            hi=cw.max("amount"),
            items=cw.count_distinct("item"),
            ids=cw.collect_list("id"),
            middle=pl.col("amount").median(),
        ),
        "sliding": by_customer.window(cw.sliding(f"{SLIDING}ms", f"{SLIDE}ms")).reduce(summed),
        "session": by_customer.window(cw.session(f"{SESSION_GAP}ms"), early="100ms").process(Visit(), Visit.schema),
        "clock_windows": by_customer.window(cw.tumbling("200ms"), time="processing").agg(
            n=cw.count(), total=cw.sum("amount"), hi=cw.max("amount"), first=cw.first("customer")
        ),
        "in_time": some_late.key_by("customer")
        .window(cw.tumbling(f"{NARROW}ms"), allowed_lateness=f"{LATENESS}ms")
        .agg(n=cw.count()),
        "weighted": by_customer.connect(rules.broadcast()).process(Weighted(), Weighted.schema),
        "numbered": ordered.process(Numbered(), Numbered.schema),
        "all_pairs": ordered.key_by("item").join(paid.key_by("thing")),
        "near_pairs": by_customer.join(by_payer, within=f"{NEAR}ms"),
        "window_pairs": by_customer.window(cw.tumbling(f"{SHARED_WINDOW}ms")).join(by_payer),
        "accounts": by_customer.connect(by_payer).process(Accounts(), Accounts.schema),
        "slides": with_slide.window(cw.sliding(f"{SLIDING}ms", f"{SLIDE}ms")).agg(
            n=cw.count(),
            lo=cw.min("amount"),
            mean=cw.mean("amount"),
            first=cw.first("slide"),
            last=cw.last("slide"),
        ),
        "spreads": by_customer.window(cw.session(f"{SESSION_GAP}ms")).agg(
            own=Spread(), lo=cw.min("amount"), mean=cw.mean("amount"), items=cw.count_distinct("item")
        ),
        "clock_slides": by_customer.window(cw.sliding("300ms", "100ms"), time="processing").agg(
            n=cw.count(), total=cw.sum("amount"), hi=cw.max("amount"), first=cw.first("customer")
        ),
        "clock_sessions": by_customer.window(cw.session("80ms"), time="processing").agg(
            n=cw.count(), total=cw.sum("amount"), hi=cw.max("amount"), first=cw.first("customer")
        ),
    }
    for name, stream in results.items():
        stream.uid(name).collect(name)
    results["ledger"].side_output("by_the_clock").collect("by_the_clock")
    results["ledger"].side_output("visits").collect("visits")
    results["in_time"].side_output("late").collect("late")


RESULTS = frozenset(
    {
        *("ledger", "by_the_clock", "visits", "tumbling", "sliding", "slides", "session", "spreads"),
        *("clock_windows", "clock_slides", "clock_sessions", "in_time", "late"),
        *("weighted", "numbered", "all_pairs", "near_pairs", "window_pairs", "accounts"),
    }
)


# --- what came out, and what should have ---------------------------------------------------------------------------------

Told = dict[str, Counter[Any]]

CLOCK_WINDOWS = frozenset({"clock_windows", "clock_slides", "clock_sessions"})
BY_SUBTASK = "numbered by subtask"
"""Holds for as long as there are as many subtasks as before."""


def told(rows: Mapping[str, Iterable[Any]]) -> Told:
    """How often each row came out, by result; what the clock or the parallelism parts is put together again."""
    apart = {"by_the_clock", "visits", *CLOCK_WINDOWS, "in_time", "late", "session", "numbered"}
    found: Told = {name: Counter(map(_plain, rows[name])) for name in rows if name not in apart}
    found["by_the_clock"] = _added_up((row.customer, row.n) for row in rows["by_the_clock"])
    found["visits"] = _visits(rows["visits"])
    for name in CLOCK_WINDOWS & rows.keys():
        found[name] = _over_windows(rows[name])
    found["in_time"] = _in_time(list(rows["in_time"]), list(rows["late"]))
    # The last column says so of early results, and those depend on the clock.
    found["session"] = Counter(_plain(row)[:-1] for row in rows["session"] if not row.early)
    found["numbered"] = _numbering(list(rows["numbered"]))
    found[BY_SUBTASK] = _numbering_by_subtask(list(rows["numbered"]))
    return found


def _plain(row: Any) -> tuple[Any, ...]:
    """Times of windows in milliseconds, and lists in an order of their own."""
    return tuple(
        round(value.timestamp() * 1000)
        if hasattr(value, "timestamp")
        else tuple(sorted(value))
        if isinstance(value, list)
        else value
        for value in row
    )


def _added_up(counts: Iterable[tuple[Any, int]]) -> Counter[Any]:
    found: Counter[Any] = Counter()
    for key, count in counts:
        found[key] += count
    return found


def _over_windows(rows: Iterable[Any]) -> Counter[Any]:
    """Which record was in which window only the clock knows."""
    found: Counter[Any] = Counter()
    for row in rows:
        found[row.customer, "n"] += row.n
        found[row.customer, "total"] += row.total
        found[row.customer, "hi"] = max(row.hi, found[row.customer, "hi"])
        found["of another customer"] += row.first != row.customer
    return found


def _visits(rows: Iterable[Any]) -> Counter[Any]:
    """How many visits each customer made, and how many of them were counted though forgotten, or forgotten though counted."""
    found: Counter[Any] = Counter({"wrong": 0})
    for customer, visits in _by(rows, lambda row: row.customer).items():
        visits.sort(key=lambda row: row.number)
        found[customer] = len(visits)
        found["wrong"] += [row.number for row in visits] != list(range(1, len(visits) + 1))
        found["wrong"] += visits[0].lately != 1
        for before, row in itertools.pairwise(visits):
            shortest, longest = row.began - before.ended, row.ended - before.began
            right = {before.lately + 1} if shortest < FORGOTTEN else set()
            if longest >= FORGOTTEN:
                right.add(1)
            found["wrong"] += row.lately not in right
    return found


def _in_time(rows: list[Any], late: list[Any]) -> Counter[Any]:
    """A record is in its window or late; which of them depends on who was how fast, except for those that come in time."""
    found: Counter[Any] = Counter()
    for customer, start, _, n in map(_plain, rows):
        # What late records change is told again, with more of them.
        found[customer, start] = max(n, found[customer, start])
    found += Counter((row.customer, row.ts // NARROW * NARROW) for row in late)
    found["told twice"] = len(rows) - len(set(map(_plain, rows)))
    found["late without reason"] = sum(row.id % 10 not in (4, 9) for row in late)
    return found


def _numbering(rows: list[Any]) -> Counter[Any]:
    """No residue twice by any subtask."""
    new = [(row.subtask, row.new) for row in rows if row.new is not None]
    return Counter(
        {
            "rows": len(rows),
            "residues": len({residue for _, residue in new}),
            "residues told twice": len(new) - len(set(new)),
        }
    )


def _numbering_by_subtask(rows: list[Any]) -> Counter[Any]:
    """Of each subtask: numbers from 1 on without a gap."""
    highest: dict[int, int] = {}
    for row in rows:
        highest[row.subtask] = max(highest.get(row.subtask, 0), row.number)
    return Counter({"different": len({(row.subtask, row.number) for row in rows}), "highest": sum(highest.values())})


def lines(numbers: Iterable[int]) -> int:
    """How often it was counted from 1 on, by whichever subtask; 0: not without a gap."""
    often = Counter(numbers)
    return often[1] if all(often[number] <= often[number - 1] for number in often if number > 1) else 0


def truth(count: int) -> Told:
    """The same of ``count`` orders and payments, from one look at all of them."""
    ordered, paid = orders(count), payments(count)
    per_customer: Counter[Any] = Counter(order.customer for order in ordered)
    return {
        "ledger": _ledger(ordered),
        "by_the_clock": per_customer,
        "tumbling": Counter(
            (
                customer,
                start,
                end,
                len(rows),
                max(row.amount for row in rows),
                len({row.item for row in rows}),
                tuple(sorted(row.id for row in rows)),
                statistics.median(row.amount for row in rows),
            )
            for (customer, start, end), rows in _windows(ordered, PERIOD, PERIOD, OFFSET).items()
        ),
        "sliding": Counter(
            (
                sum(row.id for row in rows),
                customer,
                max(row.item for row in rows),
                sum(row.amount for row in rows),
                max(row.ts for row in rows),
                start,
                end,
            )
            for (customer, start, end), rows in _windows(ordered, SLIDING, SLIDE).items()
        ),
        "slides": Counter(
            (
                customer,
                start,
                end,
                len(rows),
                min(row.amount for row in rows),
                _mean(rows),
                min(row.ts for row in rows) // SLIDE,
                max(row.ts for row in rows) // SLIDE,
            )
            for (customer, start, end), rows in _windows(ordered, SLIDING, SLIDE).items()
        ),
        "session": Counter(
            (customer, len(rows), sum(row.amount for row in rows), start, end)
            for customer, start, end, rows in _sessions(ordered)
        ),
        "spreads": Counter(
            (customer, start, end, _spread(rows), lowest, _mean(rows), len({row.item for row in rows}))
            for customer, start, end, rows in _sessions(ordered)
            for lowest in [min(row.amount for row in rows)]
        ),
        "visits": per_customer,
        "clock_windows": _of_all(ordered),
        "clock_slides": _of_all(ordered, times=3),
        "clock_sessions": _of_all(ordered),
        "in_time": Counter((order.customer, _late_time(order) // NARROW * NARROW) for order in ordered),
        "all_pairs": Counter(
            (a.item, a.id, a.customer, a.amount, a.ts, b.number, b.payer, b.ts)
            for a, b in _pairs(ordered, paid, lambda order: order.item, lambda payment: payment.thing)
        ),
        "near_pairs": Counter(
            (a.customer, a.id, a.item, a.amount, a.ts, b.number, b.thing, b.ts)
            for a, b in _pairs_of_customers(ordered, paid)
            if abs(a.ts - b.ts) <= NEAR
        ),
        "window_pairs": Counter(
            (a.customer, start, start + SHARED_WINDOW, a.id, a.item, a.amount, a.ts, b.number, b.thing, b.ts)
            for a, b in _pairs_of_customers(ordered, paid)
            if (start := a.ts // SHARED_WINDOW * SHARED_WINDOW) == b.ts // SHARED_WINDOW * SHARED_WINDOW
        ),
        "accounts": _accounts(ordered, paid),
        "weighted": Counter((order.id, order.amount * dict(RULES).get(order.customer, 0)) for order in ordered),
        "numbered": Counter({"rows": count, "residues": RESIDUES}),
        BY_SUBTASK: Counter({"different": count, "highest": count}),
    }


def _by(records: Iterable[Any], key: Callable[[Any], Any]) -> dict[Any, list[Any]]:
    found: dict[Any, list[Any]] = {}
    for record in records:
        found.setdefault(key(record), []).append(record)
    return found


def _late_time(order: Order) -> int:
    return order.ts - {9: FAR_BEHIND, 4: BEHIND}.get(order.id % 10, 0)


def _mean(rows: list[Order]) -> float:
    return sum(row.amount for row in rows) / len(rows)


def _spread(rows: list[Order]) -> tuple[int, int]:
    amounts = [row.amount for row in rows]
    return max(amounts) - min(amounts), sum(row.id for row in rows)


def _of_all(ordered: list[Order], times: int = 1) -> Counter[Any]:
    found: Counter[Any] = Counter()
    for customer, rows in _by(ordered, lambda order: order.customer).items():
        found[customer, "n"] = len(rows) * times
        found[customer, "total"] = sum(row.amount for row in rows) * times
        found[customer, "hi"] = max(row.amount for row in rows)
    return found


def _windows(ordered: list[Order], size: int, slide: int, offset: int = 0) -> dict[tuple[Any, int, int], list[Order]]:
    placed = [
        ((order.customer, start, start + size), order)
        for order in ordered
        for start in range((order.ts - size - offset) // slide * slide + slide + offset, order.ts + 1, slide)
    ]
    return {key: [order for _, order in found] for key, found in _by(placed, lambda each: each[0]).items()}


def _ledger(ordered: list[Order]) -> Counter[Any]:
    periods = Counter(
        (customer, end - 1, len(rows), sum(row.id for row in rows), None, None, None)
        for (customer, _, end), rows in _windows(ordered, PERIOD, PERIOD).items()
    )
    ends = Counter(
        (customer, AT_THE_END, 0, 0, max(amounts), sum(amounts), sum(amounts) / len(amounts))
        for customer, rows in _by(ordered, lambda order: order.customer).items()
        for amounts in [[row.amount for row in rows]]
    )
    return periods + ends


def _sessions(ordered: list[Order]) -> Iterator[tuple[Any, int, int, list[Order]]]:
    for customer, rows in _by(sorted(ordered, key=lambda order: order.ts), lambda order: order.customer).items():
        sessions = [[rows[0]]]
        for row in rows[1:]:
            if row.ts - sessions[-1][-1].ts > SESSION_GAP:
                sessions.append([])
            sessions[-1].append(row)
        for each in sessions:
            yield customer, each[0].ts, each[-1].ts + SESSION_GAP, each


def _pairs(
    left: list[Order], right: list[Payment], left_key: Callable[[Order], Any], right_key: Callable[[Payment], Any]
) -> Iterator[tuple[Order, Payment]]:
    """As in SQL, a null is equal to nothing."""
    partners = _by(right, right_key)
    return ((a, b) for a in left if left_key(a) is not None for b in partners.get(left_key(a), ()))


def _pairs_of_customers(left: list[Order], right: list[Payment]) -> Iterator[tuple[Order, Payment]]:
    return _pairs(left, right, lambda order: order.customer, lambda payment: payment.payer)


def _accounts(ordered: list[Order], paid: list[Payment]) -> Counter[Any]:
    left = Counter((order.customer, order.ts // PERIOD * PERIOD) for order in ordered)
    right = Counter((payment.payer, payment.ts // PERIOD * PERIOD) for payment in paid)
    return Counter((*key, left[key], right[key]) for key in left | right)


def difference(found: Told, expected: Told) -> dict[str, str]:
    """For each result that is wrong, some of what is missing and of what is too much; empty: all is right."""
    nothing: Counter[Any] = Counter()
    pairs = {
        name: (found.get(name, nothing), expected.get(name, nothing)) for name in sorted(found.keys() | expected.keys())
    }
    return {
        name: f"missing {_some(right - got)}, too much {_some(got - right)}"
        for name, (got, right) in pairs.items()
        if got != right
    }


def _some(rows: Counter[Any]) -> str:
    return f"{sum(rows.values())} {list(rows)[:3]}"
