"""Two sources of 1, 2, 3, ..., two tasks that sum (one the even, one the odd numbers), two sinks: where barriers align.

    cutwater run examples/odd_even_two_sources.py

Each sum task hears from both sources. When the barrier of one has come and that of the other has not, the task puts aside
what the first sends after its barrier, and goes on with the other. So the state it stores holds what stands before *both*
barriers and nothing else.
"""

import polars as pl

import cutwater as cw

PARITY = pl.col("value") % 2  # 0 is even, 1 is odd


def pipeline(env):
    first = env.read(cw.sequence(1000, start=1), uid="first", parallelism=1)
    second = env.read(cw.sequence(1000, start=1), uid="second", parallelism=1)
    numbers = [source.select(parity=PARITY, value=pl.col("value")).with_parallelism(1) for source in (first, second)]
    sums = numbers[0].union(numbers[1]).key_by("parity").reduce(add).uid("sums").with_parallelism(2)
    sums.filter("parity = 0").collect("even")
    sums.filter("parity = 1").collect("odd")


def add(total, row):
    return (row.parity, total.value + row.value)
