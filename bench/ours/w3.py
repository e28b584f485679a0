"""W3: a Python function for each record, then another one with state by key: count and sum over a thousand keys."""

from collections.abc import Iterator
from typing import Any

import polars as pl

import cutwater as cw
from bench.ours.session import arguments, spread_over_keys
from bench.ours.throughput import measure

KEYS = 1000


class Running(cw.KeyedProcess):
    so_far = cw.ValueState("struct<n:long,total:long>")

    def process(self, row: Any, ctx: Any) -> Iterator[tuple[int, int, int]]:
        n, total = self.so_far.value or (0, 0)
        self.so_far.value = (n + 1, total + row.v)
        yield row.k, n + 1, total + row.v


def running(env: cw.Environment, records: int) -> None:
    numbers = env.read(cw.sequence(records), uid="numbers")
    pairs = numbers.select(k=spread_over_keys(KEYS), v=pl.col("value") % 1024)
    moved = pairs.map(lambda row: (row.k, row.v + 1), "k long, v long")
    totals = moved.key_by("k").process(Running(), "k long, n long, total long").uid("running")
    totals.write(cw.discard(), uid="dropped")


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--n", type=int, default=6_000_000)
    parser.add_argument("--reps", type=int, default=3)
    measure("W3", parser.parse_args(), running)


if __name__ == "__main__":
    main()
