"""W6: latency through one key_by at a fixed rate; and W7: the longest hole in the output while checkpoints are taken.

A record is stamped when its source batch is made and again behind the keyed aggregate, before the sink. The first
`--skip` seconds do not count: sessions, connections and compiled code warm up in them.
"""

from pathlib import Path

import numpy as np
import polars as pl

import cutwater as cw
from bench.ours.arrivals import ArrivalLog, now_us, read_arrivals
from bench.ours.session import arguments, environment, notes_folder, scratch_folder, session, spread_over_keys, variant
from bench.peers.measure import emit


def stamp(batch: pl.DataFrame) -> pl.DataFrame:
    return batch.with_columns(made_at=pl.lit(now_us(), dtype=pl.Int64))


def stamped_totals(env: cw.Environment, *, rate: int, seconds: float, keys: int, folder: Path) -> None:
    numbers = env.read(cw.sequence(int(rate * seconds), rate=rate), uid="numbers")
    stamped = numbers.map_batches(stamp, "value long, made_at long").with_columns(k=spread_over_keys(keys))
    newest = stamped.key_by("k").agg(n=cw.count(), made_at=cw.max("made_at")).uid("newest")
    noted = newest.map_batches(ArrivalLog(str(folder)), "k long, n long, made_at long")
    noted.write(cw.discard(), uid="dropped")


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--rate", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=25)
    parser.add_argument("--skip", type=float, default=10)
    wanted = parser.parse_args()

    with session() as spark, scratch_folder() as folder, notes_folder() as notes:
        env = environment(spark, wanted, folder)
        stamped_totals(env, rate=wanted.rate, seconds=wanted.seconds, keys=wanted.keys, folder=notes)
        result = env.execute("w6", restore="fresh")
        logs = read_arrivals(notes)
    made_at = np.concatenate([log.made_at for log in logs])
    arrived_at = np.concatenate([log.arrived_at for log in logs])
    since = made_at.min() + int(wanted.skip * 1e6)
    counted = made_at >= since
    late_ms = (arrived_at - made_at)[counted] / 1e3
    # Each subtask by itself: the other would hide that one stands still.
    holes_ms = np.concatenate([np.diff(log.arrived_at[log.made_at >= since]) for log in logs]) / 1e3
    p50, p90, p99, p999 = np.percentile(late_ms, [50, 90, 99, 99.9])
    emit(
        "W6",
        "cutwater",
        f"rate={wanted.rate} {variant(wanted)}",
        rate=wanted.rate,
        samples=len(late_ms),
        p50_ms=float(p50),
        p90_ms=float(p90),
        p99_ms=float(p99),
        p999_ms=float(p999),
        max_ms=float(late_ms.max()),
        longest_hole_ms=float(holes_ms.max()),
        ck_completed=result.checkpoints,
    )


if __name__ == "__main__":
    main()
