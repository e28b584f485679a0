"""W2: word count in event-time windows: lines of ten words out of ten thousand, split, five seconds a window, a line a millisecond.

As for the peers the lines are made on the way, as texts, and taken apart again.
"""

import polars as pl

import cutwater as cw
from bench.ours.session import arguments
from bench.ours.throughput import measure

WORDS = 10


def line() -> pl.Expr:
    """Words 0 to 9999, the small ones often, as the peers make them."""
    drawn = [(pl.col("value").hash(seed) % 1_000_000) / 1e6 for seed in range(WORDS)]
    return pl.concat_str([pl.lit(10_000.0).pow(each).cast(pl.Int64).cast(pl.String) for each in drawn], separator=" ")


def split(lines: pl.DataFrame) -> pl.DataFrame:
    return lines.select("ts", word=pl.col("line").str.split(" ")).explode("word")


def counts(env: cw.Environment, lines: int) -> None:
    numbers = env.read(cw.sequence(lines), uid="numbers")
    timed = numbers.select(ts="value", line=line()).with_timestamps("ts", out_of_orderness="1s")
    words = timed.map_batches(split, "ts long, word string").key_by("word")
    words.window(cw.tumbling("5s")).agg(n=cw.count()).uid("counts").write(cw.discard(), uid="dropped")


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--n", type=int, default=6_000_000)
    parser.add_argument("--reps", type=int, default=3)
    measure("W2", parser.parse_args(), counts)


if __name__ == "__main__":
    main()
