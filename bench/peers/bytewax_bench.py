"""bytewax 0.21.1 baselines (W1, W2, W3). Run inside the bytewax venv, e.g.

    python bytewax_bench.py w1 --n 1000000 --procs 2 --snapshot 1

Two worker processes (bytewax workers are Python threads under one GIL, so processes are the way
to two cores). Recovery on: SQLite snapshots of the changed keys every `--snapshot` seconds.
The source and the sink are minimal Python ones: batches of 1000 tuples in, dropped at the end.
"""

import argparse
import os
import random
import socket
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta

from measure import Meter, emit, med, note, quiet, scratch


def flow():
    import bytewax.operators as op
    from bytewax.dataflow import Dataflow
    from bytewax.inputs import FixedPartitionedSource, StatefulSourcePartition
    from bytewax.outputs import DynamicSink, StatelessSinkPartition

    work = os.environ["PEERS_WORK"]
    n, parts, keys = (int(os.environ[k]) for k in ("PEERS_N", "PEERS_PARTS", "PEERS_KEYS"))
    epoch = datetime(2026, 1, 1, tzinfo=UTC)
    rnd = random.Random(7)
    vocab = [str(int(10000 ** (i / 65536.0))) for i in range(65536)]

    class Part(StatefulSourcePartition):
        def __init__(self, lo, hi):
            self.i, self.hi = lo, hi

        def next_batch(self):
            if self.i >= self.hi:
                raise StopIteration
            lo, hi = self.i, min(self.hi, self.i + 1000)
            self.i = hi
            if work == "w2":
                pick = rnd.choices
                return [(epoch + timedelta(milliseconds=i), " ".join(pick(vocab, k=10))) for i in range(lo, hi)]
            return [((i * 2654435761) % 4294967296 % keys, i & 1023) for i in range(lo, hi)]

        def snapshot(self):
            return self.i

    class Src(FixedPartitionedSource):
        def list_parts(self):
            return [str(p) for p in range(parts)]

        def build_part(self, step_id, part, resume):
            p, per = int(part), n // parts
            return Part(p * per if resume is None else resume, (p + 1) * per)

    class Drop(StatelessSinkPartition):
        def write_batch(self, items):
            pass

    class Sink(DynamicSink):
        def build(self, step_id, index, count):
            return Drop()

    f = Dataflow("peers")
    s = op.input("in", f, Src())
    if work == "w2":
        import bytewax.operators.windowing as win

        words = op.flat_map("split", s, lambda x: [(w, x[0]) for w in x[1].split(" ")])
        clock = win.EventClock(lambda ts: ts, wait_for_system_duration=timedelta(seconds=1))
        wo = win.fold_window(
            "count",
            words,
            clock,
            win.TumblingWindower(length=timedelta(seconds=5), align_to=epoch),
            lambda: 0,
            lambda acc, _: acc + 1,
            lambda a, b: a + b,
        )
        out = wo.down
    else:
        if work == "w3":
            s = op.map("map", s, lambda x: (x[0], x[1] + 1))
        keyed = op.map("key", s, lambda x: (str(x[0]), x[1]))

        def step(st, v):
            st = (1, v) if st is None else (st[0] + 1, st[1] + v)
            return st, st

        out = op.stateful_map("run", keyed, step)
    op.output("out", out, Sink())
    return f


def child():
    from pathlib import Path

    from bytewax.recovery import RecoveryConfig
    from bytewax.run import cli_main

    f = flow()
    snap = float(os.environ["PEERS_SNAP"])
    addrs = os.environ["PEERS_ADDRS"].split(";")
    t0 = time.time()
    cli_main(
        f,
        workers_per_process=1,
        process_id=int(os.environ["PEERS_PID"]) if len(addrs) > 1 else None,
        addresses=addrs if len(addrs) > 1 else None,
        epoch_interval=timedelta(seconds=snap) if snap else timedelta(seconds=10),
        recovery_config=RecoveryConfig(Path(os.environ["PEERS_DB"])) if snap else None,
    )
    print(f"ELAPSED {time.time() - t0}", flush=True)


def once(a, tmp):
    if a.snapshot:
        subprocess.run(
            [sys.executable, "-m", "bytewax.recovery", tmp, str(a.procs)], check=True, stdout=subprocess.DEVNULL
        )
    ports = []
    for _ in range(a.procs):
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            ports.append(s.getsockname()[1])
    env = dict(
        os.environ,
        PEERS_WORK=a.cmd,
        PEERS_N=str(a.n),
        PEERS_PARTS=str(a.procs),
        PEERS_KEYS=str(1000 if a.cmd == "w3" else 1_000_000),
        PEERS_SNAP=str(a.snapshot),
        PEERS_DB=tmp,
        PEERS_ADDRS=";".join(f"127.0.0.1:{p}" for p in ports),
    )
    ps = [
        subprocess.Popen(
            [sys.executable, os.path.abspath(__file__), "child"],
            env=dict(env, PEERS_PID=str(i)),
            stdout=subprocess.PIPE,
            text=True,
        )
        for i in range(a.procs)
    ]
    el = []
    for p in ps:
        out = p.communicate()[0]
        if p.returncode:
            raise RuntimeError(f"child failed: {p.returncode}")
        el += [float(x.split()[1]) for x in out.splitlines() if x.startswith("ELAPSED")]
    return max(el)


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("cmd", choices=["w1", "w2", "w3", "child"])
    p.add_argument("--n", type=int, default=500_000)
    p.add_argument("--procs", type=int, default=2)
    p.add_argument("--snapshot", type=float, default=1.0, help="seconds; 0 = recovery off")
    p.add_argument("--reps", type=int, default=3)
    a = p.parse_args()
    if a.cmd == "child":
        return child()
    secs, cpus, oth = [], [], []
    for _ in range(a.reps):
        quiet()
        with scratch() as tmp, Meter() as m:
            secs.append(once(a, tmp))
        cpus.append(m.cpu)
        oth.append(m.others)
        note(f"  {a.n / secs[-1] / 1e3:.0f}k/s cpu {m.cpu:.1f}s others {m.others:.2f}")
    emit(
        a.cmd.upper(),
        "bytewax-0.21.1",
        f"{a.procs} processes snapshot={a.snapshot or 'off'}" + (" lines/s" if a.cmd == "w2" else ""),
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
