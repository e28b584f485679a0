"""One pipeline with every kind of state, timer, window and join, and what a plain computation over all records makes of it.

Orders and payments are numbers made into records by arithmetic, so that whoever computes the truth needs no input but a count.
Records come out of order, but never behind the watermark: every result is determined, at any parallelism and over any failure.
Where what is told depends on when it is told (the clock, who has seen what), `told` adds it up to what does not.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

import cutwater as cw

BACKENDS: Mapping[str, cw.StateBackend] = {"memory": cw.Memory()}
"""Every backend that the pipeline is run on, by the name that tests give it. The one place to add one."""

CUSTOMERS = 23
PERIOD, SLIDING, SLIDE, SESSION_GAP, SHARED_WINDOW, NEAR = 1000, 1500, 500, 180, 100, 30
"""All in milliseconds."""
AT_THE_END = 10**12
"""Later than every record: what is set for it fires when all input has ended."""
RULES = [(customer, customer % 5 + 1) for customer in range(CUSTOMERS)]
CLOCK_STEP = 50
RESIDUES = 7


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


# --- records: the same arithmetic for one number, and for columns ------------------------------------------------------


def time_of(value: Any) -> Any:
    """A record every 5 ms, up to 40 ms out of order, and a pause of 200 ms now and then, in which sessions end."""
    return value * 5 - value * 7 % 5 * 10 + value // 100 * 200


OUT_OF_ORDER = "50ms"


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
    """All five kinds of state by key: a row for each customer and period when it is over, and one at the end."""

    schema = "customer long, at long, n long, ids long, highest long, total long, mean double"

    highest = cw.ValueState("long", ttl="1 day")
    running = cw.ListState("struct<id:long,ts:long>")
    periods = cw.MapState("long", "long")
    total = cw.ReducingState("long", lambda total, amount: total + amount)
    mean = cw.AggregatingState(
        "struct<n:long,total:long>",
        create=lambda: (0, 0),
        add=lambda sums, amount: (sums[0] + 1, sums[1] + amount),
        result=lambda sums: sums[1] / sums[0],
    )

    def process(self, row: Any, ctx: Any) -> None:
        self.highest.value = max(self.highest.value or 0, row.amount)
        end = row.ts // PERIOD * PERIOD + PERIOD
        self.running.append((row.id, row.ts))
        self.periods[end] = self.periods.get(end, 0) + 1
        self.total.add(row.amount)
        self.mean.add(row.amount)
        ctx.timers.event_time(end - 1)
        ctx.timers.event_time(AT_THE_END)

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Any]:
        if timestamp == AT_THE_END:
            left = len(self.running) + len(self.periods)
            yield ctx.key, timestamp, left, 0, self.highest.value, self.total.value, self.mean.value
            return
        over = [each.id for each in self.running if each.ts <= timestamp]
        rest = [each for each in self.running if each.ts > timestamp]
        self.running.clear()
        self.running.extend(rest)
        yield ctx.key, timestamp, self.periods[timestamp + 1], sum(over), None, None, None
        del self.periods[timestamp + 1]


class ByTheClock(cw.KeyedProcess):
    """How many orders of a customer came since they were last told of: a timer of the clock tells, and the end of input."""

    schema = "customer long, n long, by_clock boolean"

    untold = cw.ReducingState("long", lambda count, more: count + more)

    def process(self, row: Any, ctx: Any) -> None:
        self.untold.add(1)
        ctx.timers.processing_time(ctx.now // CLOCK_STEP * CLOCK_STEP + CLOCK_STEP)
        ctx.timers.event_time(AT_THE_END)

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Any]:
        if self.untold.value is not None:
            yield ctx.key, self.untold.value, timestamp != AT_THE_END
            self.untold.clear()


class Visit(cw.WindowProcess):
    schema = "customer long, n long, amount long"

    def process(self, rows: list[Any], ctx: Any) -> Iterator[Any]:
        yield ctx.key, len(rows), sum(row.amount for row in rows)


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
    """Amounts by the factor of their customer. Rules have no time, so no timer fires before the last of them is known."""

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
    seen = cw.UnionOperatorState("long")

    def process(self, row: Any, ctx: Any) -> Iterator[Any]:
        number = sum(self.numbers) + 1
        self.numbers.clear()
        self.numbers.append(number)
        residue = row.id % RESIDUES
        new = residue not in self.seen
        if new:
            self.seen.append(residue)
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


def pipeline(env: cw.Environment, count: int, rate: float | None = None) -> None:
    """Each result is collected under its name; the sources are ``orders``, ``payments`` and ``rules``."""
    ordered = _read(env, "orders", count, rate, columns_of_orders())
    paid = _read(env, "payments", count, rate, columns_of_payments())
    rules = env.read(cw.from_rows(RULES, "customer long, factor long"), uid="rules", parallelism=1)
    by_customer, by_payer = ordered.key_by("customer"), paid.key_by("payer")
    shared = by_customer.window(cw.tumbling(f"{SHARED_WINDOW}ms"))
    results = {
        "ledger": by_customer.process(Ledger(), Ledger.schema),
        "by_the_clock": by_customer.process(ByTheClock(), ByTheClock.schema),
        "tumbling": by_customer.window(cw.tumbling(f"{PERIOD}ms")).agg(n=cw.count(), hi=cw.max("amount")),
        "sliding": by_customer.window(cw.sliding(f"{SLIDING}ms", f"{SLIDE}ms")).reduce(summed),
        "session": by_customer.window(cw.session(f"{SESSION_GAP}ms")).process(Visit(), Visit.schema),
        "clock_windows": by_customer.window(cw.tumbling("200ms"), time="processing").agg(n=cw.count()),
        "all_pairs": ordered.key_by("item").join(paid.key_by("thing")),
        "near_pairs": by_customer.join(by_payer, within=f"{NEAR}ms"),
        "window_pairs": shared.join(by_payer),
        "accounts": by_customer.connect(by_payer).process(Accounts(), Accounts.schema),
        "weighted": by_customer.connect(rules.broadcast()).process(Weighted(), Weighted.schema),
        "numbered": ordered.rebalance().process(Numbered(), Numbered.schema),
    }
    for name, stream in results.items():
        stream.uid(name).collect(name)


def _read(env: cw.Environment, uid: str, count: int, rate: float | None, columns: dict[str, pl.Expr]) -> cw.Stream:
    numbers = env.read(cw.sequence(count, rate=rate), uid=uid)
    return numbers.select(**columns).with_timestamps("ts", out_of_orderness=OUT_OF_ORDER)


# --- what came out, and what should have ---------------------------------------------------------------------------------

Told = dict[str, Counter[Any]]


def told(rows: Mapping[str, Iterable[Any]]) -> Told:
    """How often each row came out, by result; what the clock or the parallelism parts is put together again."""
    found: Told = {name: Counter(map(_plain, rows[name])) for name in rows}
    for name in ("by_the_clock", "clock_windows"):
        sums: Counter[Any] = Counter()
        for row in rows[name]:
            sums[row.customer] += row.n
        found[name] = sums
    found["numbered"] = _numbering(list(rows["numbered"]))
    return found


def _plain(row: Any) -> tuple[Any, ...]:
    """Times of windows in milliseconds."""
    return tuple(round(value.timestamp() * 1000) if hasattr(value, "timestamp") else value for value in row)


def _numbering(rows: list[Any]) -> Counter[Any]:
    """Of each subtask: numbers from 1 on without a gap, and no residue twice."""
    highest: dict[int, int] = {}
    for row in rows:
        highest[row.subtask] = max(highest.get(row.subtask, 0), row.number)
    new = [(row.subtask, row.new) for row in rows if row.new is not None]
    return Counter(
        {
            "rows": len(rows),
            "different": len({(row.subtask, row.number) for row in rows}),
            "highest": sum(highest.values()),
            "residues": len({residue for _, residue in new}),
            "residues told twice": len(new) - len(set(new)),
        }
    )


def truth(count: int) -> Told:
    """The same of ``count`` orders and payments, from one look at all of them."""
    ordered, paid = orders(count), payments(count)
    per_customer: Counter[Any] = Counter(order.customer for order in ordered)
    return {
        "ledger": _ledger(ordered),
        "by_the_clock": per_customer,
        "tumbling": Counter(
            (customer, start, end, len(rows), max(row.amount for row in rows))
            for (customer, start, end), rows in _windows(ordered, PERIOD, PERIOD).items()
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
        "session": _sessions(ordered),
        "clock_windows": per_customer,
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
        "numbered": Counter(
            {"rows": count, "different": count, "highest": count, "residues": RESIDUES, "residues told twice": 0}
        ),
    }


def _by(records: Iterable[Any], key: Callable[[Any], Any]) -> dict[Any, list[Any]]:
    found: dict[Any, list[Any]] = {}
    for record in records:
        found.setdefault(key(record), []).append(record)
    return found


def _windows(ordered: list[Order], size: int, slide: int) -> dict[tuple[Any, int, int], list[Order]]:
    placed = [
        ((order.customer, start, start + size), order)
        for order in ordered
        for start in range((order.ts - size) // slide * slide + slide, order.ts + 1, slide)
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


def _sessions(ordered: list[Order]) -> Counter[Any]:
    found: Counter[Any] = Counter()
    for customer, rows in _by(sorted(ordered, key=lambda order: order.ts), lambda order: order.customer).items():
        sessions = [[rows[0]]]
        for row in rows[1:]:
            if row.ts - sessions[-1][-1].ts > SESSION_GAP:
                sessions.append([])
            sessions[-1].append(row)
        for each in sessions:
            amount = sum(row.amount for row in each)
            found[customer, len(each), amount, each[0].ts, each[-1].ts + SESSION_GAP] += 1
    return found


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
    return {
        name: f"missing {_some(expected[name] - found[name])}, too much {_some(found[name] - expected[name])}"
        for name in expected
        if found[name] != expected[name]
    }


def _some(rows: Counter[Any]) -> str:
    return f"{sum(rows.values())} {list(rows)[:3]}"
