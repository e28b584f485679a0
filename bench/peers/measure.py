"""Helpers shared by the peer benchmark scripts (standard library only)."""

import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from contextlib import contextmanager


def emit(workload, peer, variant, **fields):
    """Print one result as a JSON line, and append it to $PEERS_OUT when that is set."""
    row = {"workload": workload, "peer": peer, "variant": variant}
    row.update({k: (round(v, 3) if isinstance(v, float) else v) for k, v in fields.items()})
    row["load1"] = round(os.getloadavg()[0], 2)
    row["at"] = time.strftime("%H:%M:%S")
    line = json.dumps(row)
    print("RESULT " + line, flush=True)
    out = os.environ.get("PEERS_OUT")
    if out:
        with open(out, "a") as fh:
            fh.write(line + "\n")
    return row


def med(values):
    return statistics.median(values)


def pct(values, q):
    """Nearest-rank percentile, q in 0..100."""
    s = sorted(values)
    return s[min(len(s) - 1, max(0, round(q / 100.0 * len(s) + 0.5) - 1))]


@contextmanager
def scratch(prefix="peers-"):
    d = tempfile.mkdtemp(prefix=prefix)
    try:
        yield d
    finally:
        shutil.rmtree(d, ignore_errors=True)


_TICK = os.sysconf("SC_CLK_TCK")


def cpu_seconds(root=None):
    """CPU seconds used so far by `root` (default: this process) and every live descendant,
    plus what their already-reaped children used. Wall-clock is noisy on a shared machine;
    CPU seconds per record are much less so."""
    root = root or os.getpid()
    kids, use = {}, {}
    for p in os.listdir("/proc"):
        if not p.isdigit():
            continue
        try:
            with open(f"/proc/{p}/stat") as fh:
                f = fh.read().rsplit(")", 1)[1].split()
        except OSError:
            continue
        kids.setdefault(int(f[1]), []).append(int(p))
        use[int(p)] = sum(int(x) for x in f[11:15]) / _TICK
    todo, total = [root], 0.0
    while todo:
        p = todo.pop()
        total += use.get(p, 0.0)
        todo += kids.get(p, [])
    return total


def _machine():
    """(busy, total) CPU seconds of the whole machine since boot."""
    with open("/proc/stat") as fh:
        f = [int(x) for x in fh.readline().split()[1:9]]
    return (sum(f) - f[3] - f[4]) / _TICK, sum(f) / _TICK


def quiet(limit=None):
    """Waits (at most $PEERS_QUIET seconds, default 20) until the machine has been at least
    85% idle for one second. Returns the seconds waited."""
    limit = float(os.environ.get("PEERS_QUIET", "20")) if limit is None else limit
    t0 = time.time()
    while True:
        b0, a0 = _machine()
        time.sleep(1.0)
        b1, a1 = _machine()
        if (b1 - b0) <= 0.15 * (a1 - a0) or time.time() - t0 >= limit:
            return time.time() - t0


class Meter:
    """with Meter() as m: ...  ->  m.wall, m.cpu (this process tree), m.others (average
    number of cores that processes outside this tree kept busy meanwhile)."""

    def __enter__(self):
        self.t0, self.c0, self.b0 = time.time(), cpu_seconds(), _machine()[0]
        return self

    def __exit__(self, *exc):
        self.wall = time.time() - self.t0
        self.cpu = cpu_seconds() - self.c0
        self.others = max(0.0, (_machine()[0] - self.b0 - self.cpu) / self.wall)


def note(*a):
    print(*a, file=sys.stderr, flush=True)
