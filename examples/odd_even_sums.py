"""The sums of the even and of the odd numbers of 1, 2, 3, ...: what a consistent checkpoint holds.

    cutwater run examples/odd_even_sums.py

A checkpoint taken behind the number 5 holds the source's position 5, the even sum 6 (2 + 4) and the odd sum 9 (1 + 3 + 5):
every part of it has seen the same five numbers, though no part was ever stopped to wait for another.
"""

import polars as pl

import cutwater as cw

PARITY = pl.when(pl.col("value") % 2 == 0).then(pl.lit("even")).otherwise(pl.lit("odd"))


def pipeline(env):
    numbers = env.read(cw.sequence(1000, start=1), uid="numbers", parallelism=1)
    parted = numbers.select(parity=PARITY, value=pl.col("value"))
    parted.key_by("parity").agg(total=cw.sum("value")).uid("sums").collect("sums")
