"""pathway 0.33.0 baselines (W1, W2, W3). Run inside the pathway venv, e.g.

    python pathway_bench.py w1 --source csv --persist operator

Sources: 'csv' = pre-generated CSV files read by the Rust engine in static mode (one engine
timestamp per read batch, so no running updates: closest to a bulk load); 'python' = a Python
ConnectorSubject that calls next() per row, a true stream with autocommit every second.
Two worker threads (PATHWAY_THREADS=2). The run happens in a child process, timed around pw.run.
"""

import argparse
import os
import random
import subprocess
import sys
import time

from measure import Meter, emit, med, note, quiet, scratch


def generate(a, d):
    os.makedirs(d, exist_ok=True)
    rnd = random.Random(7)
    vocab = [str(int(10000 ** (i / 65536.0))) for i in range(65536)]
    files = 4
    for f in range(files):
        with open(os.path.join(d, f"{f}.csv"), "w") as fh:
            lo, hi = f * a.n // files, (f + 1) * a.n // files
            if a.cmd == "w2":
                fh.write("ts,line\n")
                fh.writelines(f"{i}," + " ".join(rnd.choices(vocab, k=10)) + "\n" for i in range(lo, hi))
            else:
                keys = 1000 if a.cmd == "w3" else 1_000_000
                fh.write("k,v\n")
                fh.writelines(f"{(i * 2654435761) % 4294967296 % keys},{i & 1023}\n" for i in range(lo, hi))


def child(a):
    import pathway as pw

    if a.cmd == "w2":

        class S(pw.Schema):
            ts: int
            line: str
    else:

        class S(pw.Schema):
            k: int
            v: int

    keys = 1000 if a.cmd == "w3" else 1_000_000
    if a.source == "csv":
        t = pw.io.csv.read(os.environ["PEERS_DATA"], schema=S, mode="static", name="in")
    else:

        class Gen(pw.io.python.ConnectorSubject):
            def run(self):
                rnd = random.Random(7)
                if a.cmd == "w2":
                    vocab = [str(int(10000 ** (i / 65536.0))) for i in range(65536)]
                    for i in range(a.n):
                        self.next(ts=i, line=" ".join(rnd.choices(vocab, k=10)))
                else:
                    for i in range(a.n):
                        self.next(k=(i * 2654435761) % 4294967296 % keys, v=i & 1023)

        t = pw.io.python.read(Gen(), schema=S, autocommit_duration_ms=1000, name="in")
    if a.cmd == "w1":
        out = t.groupby(pw.this.k).reduce(pw.this.k, c=pw.reducers.count(), s=pw.reducers.sum(pw.this.v))
    elif a.cmd == "w2":
        w = t.select(pw.this.ts, word=pw.apply_with_type(lambda x: tuple(x.split(" ")), tuple[str, ...], pw.this.line))
        w = w.flatten(pw.this.word)
        out = w.windowby(
            pw.this.ts,
            window=pw.temporal.tumbling(duration=5000),
            behavior=pw.temporal.exactly_once_behavior(shift=1000),
            instance=pw.this.word,
        ).reduce(word=pw.this._pw_instance, start=pw.this._pw_window_start, c=pw.reducers.count())
    else:
        m = t.select(pw.this.k, v=pw.apply_with_type(lambda v: v + 1, int, pw.this.v))

        # the stateful Python function: a stateful reducer, called once per key and row batch
        @pw.reducers.stateful_many
        def run(state, rows):
            c, s = state if state is not None else (0, 0)
            for (v,), cnt in rows:
                c += cnt
                s += v * cnt
            return (c, s)

        out = m.groupby(pw.this.k).reduce(pw.this.k, cs=run(pw.this.v))
    pw.io.null.write(out)
    cfg = None
    if a.persist != "off":
        mode = pw.PersistenceMode.OPERATOR_PERSISTING if a.persist == "operator" else pw.PersistenceMode.PERSISTING
        cfg = pw.persistence.Config(
            pw.persistence.Backend.filesystem(os.environ["PEERS_DB"]), snapshot_interval_ms=1000, persistence_mode=mode
        )
    t0 = time.time()
    pw.run(monitoring_level=pw.MonitoringLevel.NONE, persistence_config=cfg)
    print(f"ELAPSED {time.time() - t0}", flush=True)


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("cmd", choices=["w1", "w2", "w3"])
    p.add_argument("--n", type=int, default=2_000_000)
    p.add_argument("--source", default="csv", choices=["csv", "python"])
    p.add_argument("--persist", default="operator", choices=["off", "input", "operator"])
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--reps", type=int, default=3)
    p.add_argument("--child", action="store_true")
    a = p.parse_args()
    if a.child:
        return child(a)
    secs, cpus, oth = [], [], []
    with scratch() as top:
        data = os.path.join(top, "data")
        if a.source == "csv":
            generate(a, data)
        for i in range(a.reps):
            db = os.path.join(top, f"db{i}")
            env = dict(
                os.environ, PEERS_DATA=data, PEERS_DB=db, PATHWAY_THREADS=str(a.threads), PATHWAY_DISABLE_TELEMETRY="1"
            )
            quiet()
            with Meter() as m:
                r = subprocess.run(
                    [
                        sys.executable,
                        os.path.abspath(__file__),
                        a.cmd,
                        "--child",
                        "--n",
                        str(a.n),
                        "--source",
                        a.source,
                        "--persist",
                        a.persist,
                    ],
                    env=env,
                    stdout=subprocess.PIPE,
                    text=True,
                    check=True,
                )
            s = [float(x.split()[1]) for x in r.stdout.splitlines() if x.startswith("ELAPSED")]
            secs.append(s[0])
            cpus.append(m.cpu)
            oth.append(m.others)
            note(f"  {a.n / s[0] / 1e3:.0f}k/s cpu {m.cpu:.1f}s others {m.others:.2f}")
    emit(
        a.cmd.upper(),
        "pathway-0.33.0",
        f"source={a.source} persist={a.persist} threads={a.threads}" + (" lines/s" if a.cmd == "w2" else ""),
        n=a.n,
        reps=a.reps,
        rec_per_s=int(a.n / med(secs)),
        best=int(a.n / min(secs)),
        worst=int(a.n / max(secs)),
        cpu_us_per_rec=med(cpus) / a.n * 1e6,
        others_cores=med(oth),
    )
    return None


if __name__ == "__main__":
    main()
