"""What is measured, on whom, and what we must reach. Data only; the harness runs it and the report judges it."""

import enum
from dataclasses import dataclass
from typing import Literal


class Better(enum.Enum):
    HIGHER = "higher"
    LOWER = "lower"


@dataclass(frozen=True, slots=True)
class Contestant:
    """One command that prints a RESULT line. ``venv`` is the environment it runs in; ours is the project's own."""

    name: str
    venv: Literal["ours", "flink", "spark", "bytewax", "pathway"]
    command: tuple[str, ...]
    quick: tuple[str, ...] = ()
    """Arguments appended for a short run, which shows that it works and nothing more."""
    remark: str = ""
    """What it does more or less than the others; stands in the table."""
    baseline_of: str | None = None
    """Names the contestant that this one is, with checkpoints off: a reference, not a competitor."""

    @property
    def is_ours(self) -> bool:
        return self.venv == "ours"


@dataclass(frozen=True, slots=True)
class TimesBestPeer:
    """Ours must be at least ``factor`` times as good as the best peer of the same run."""

    factor: float


@dataclass(frozen=True, slots=True)
class Bound:
    """Ours must stay within ``limit``, whatever the peers do."""

    limit: float


@dataclass(frozen=True, slots=True)
class Figure:
    """One number of a workload: where it stands in the RESULT lines, which direction is good, what we must reach."""

    title: str
    unit: str
    keys: tuple[str, ...]
    better: Better
    must: TimesBestPeer | Bound
    goal: TimesBestPeer | Bound
    against_baseline: bool = False
    """The figure is how much longer a record takes (in %): the result's own ``cost_percent``, or against the baseline."""


@dataclass(frozen=True, slots=True)
class Workload:
    id: str
    title: str
    contestants: tuple[Contestant, ...]
    figures: tuple[Figure, ...]


FLINK = "flink_bench.py"
SPARK = "spark_bench.py"
RATE = ("rec_per_s",)

_OURS_QUICK_W1 = ("--n", "4000000", "--pairs", "1")
_FLINK_QUICK_W1 = ("--n", "1000000")
_SPARK_QUICK_W1 = ("--batch", "300000", "--batches", "2", "--skip", "1")
_FLINK_W1 = (FLINK, "w1-sql", "--n", "5000000", "--reps", "1", "--warmup", "1")

W1 = Workload(
    "W1",
    "keyed running count and sum, 1 M keys, checkpoints every second",
    (
        Contestant("Cutwater, Memory", "ours", ("bench.ours.w1",), _OURS_QUICK_W1, "one update per key and batch"),
        Contestant("Flink SQL, heap", "flink", (*_FLINK_W1, "--ckpt", "1s"), _FLINK_QUICK_W1, "one update per record"),
        Contestant(
            "Spark SS, HDFS-backed store",
            "spark",
            (SPARK, "w1", "--store", "hdfs", "--batches", "5", "--skip", "4"),
            _SPARK_QUICK_W1,
            "one update per key and micro-batch; commits with each batch, not every second",
        ),
        Contestant(
            "Pathway",
            "pathway",
            ("pathway_bench.py", "w1", "--persist", "input", "--n", "1000000", "--reps", "1"),
            remark="bulk load of static files, snapshots its input only",
        ),
        Contestant("Bytewax", "bytewax", ("bytewax_bench.py", "w1", "--n", "300000", "--reps", "1")),
        Contestant(
            "Flink SQL, heap, no checkpoints",
            "flink",
            (*_FLINK_W1, "--ckpt", "off"),
            _FLINK_QUICK_W1,
            baseline_of="Flink SQL, heap",
        ),
    ),
    (
        Figure("throughput", "rec/s", RATE, Better.HIGHER, TimesBestPeer(8), TimesBestPeer(15)),
        Figure("cost of checkpoints", "%", RATE, Better.LOWER, Bound(5.0), Bound(2.0), against_baseline=True),
    ),
)

_FLINK_ON_ROCKSDB = ("--backend", "rocksdb", "--incremental")

W1_ROCKSDB = Workload(
    "W1-rocksdb",
    "the same on RocksDB, incremental",
    (
        Contestant(
            "Cutwater, RocksDB",
            "ours",
            ("bench.ours.w1", "--backend", "rocksdb-incremental", "--n", "20000000"),
            _OURS_QUICK_W1,
            "one update per key and batch",
        ),
        Contestant(
            "Flink SQL, RocksDB",
            "flink",
            (FLINK, "w1-sql", "--n", "2000000", "--reps", "1", "--warmup", "1", "--ckpt", "1s", *_FLINK_ON_ROCKSDB),
            ("--n", "300000"),
            "one update per record",
        ),
        Contestant(
            "Spark SS, RocksDB",
            "spark",
            (SPARK, "w1", "--store", "rocksdb", "--batches", "5", "--skip", "4"),
            _SPARK_QUICK_W1,
            "one update per key and micro-batch; commits with each batch, not every second",
        ),
    ),
    (Figure("throughput", "rec/s", RATE, Better.HIGHER, TimesBestPeer(4), TimesBestPeer(15)),),
)

W2 = Workload(
    "W2",
    "word count in event-time windows of 5 s, lines of 10 words out of 10,000",
    (
        Contestant("Cutwater, Memory", "ours", ("bench.ours.w2",), ("--n", "300000", "--reps", "1")),
        Contestant(
            "Flink SQL, heap",
            "flink",
            (FLINK, "w2-sql", "--n", "1000000", "--reps", "1", "--warmup", "1", "--ckpt", "1s"),
            ("--n", "100000"),
        ),
        Contestant(
            "Spark SS, RocksDB",
            "spark",
            (SPARK, "w2", "--batch", "100000"),
            ("--batch", "50000", "--batches", "2", "--skip", "1"),
            "commits with each batch, not every second",
        ),
    ),
    (Figure("throughput", "lines/s", RATE, Better.HIGHER, TimesBestPeer(8), TimesBestPeer(20)),),
)

W3 = Workload(
    "W3",
    "a Python function for each record, with state by key, 1,000 keys",
    (
        Contestant("Cutwater, Memory", "ours", ("bench.ours.w3",), ("--n", "200000", "--reps", "1")),
        Contestant(
            "Bytewax",
            "bytewax",
            ("bytewax_bench.py", "w3", "--n", "1500000", "--reps", "1"),
            ("--n", "200000"),
            "no barrier: each worker snapshots by itself",
        ),
        Contestant(
            "Spark SS, applyInPandasWithState",
            "spark",
            (SPARK, "w3", "--fn", "apply", "--batch", "100000", "--batches", "5", "--skip", "2"),
            ("--batch", "50000", "--batches", "2", "--skip", "1"),
            "commits with each batch, not every second",
        ),
        Contestant(
            "PyFlink",
            "flink",
            (FLINK, "w3-ds", "--n", "200000", "--base", "1000", "--bundle", "100000", "--reps", "1"),
            ("--n", "50000"),
            "with bundles of 100,000 records, the fastest",
        ),
    ),
    (Figure("throughput", "rec/s", RATE, Better.HIGHER, TimesBestPeer(1.2), TimesBestPeer(3)),),
)

_SHORT_CUT = (
    Figure("synchronous part", "ms", ("sync_ms",), Better.LOWER, Bound(10.0), Bound(2.0)),
    Figure("synchronous part, longest", "ms", ("longest_sync_ms",), Better.LOWER, Bound(10.0), Bound(2.0)),
    Figure("longest gap of a loop", "ms", ("longest_gap_ms",), Better.LOWER, Bound(100.0), Bound(20.0)),
)

W4 = Workload(
    "W4",
    "a full checkpoint of 1 M keys of 100 bytes, records coming at a steady rate",
    (
        Contestant(
            "Cutwater, Memory", "ours", ("bench.ours.w4",), ("--warm-up", "2", "--seconds", "4", "--keys", "100000")
        ),
        Contestant(
            "Flink SQL, heap",
            "flink",
            (FLINK, "w4", "--ckpt", "2s"),
            ("--seconds", "15", "--skip", "8", "--keys", "100000"),
        ),
    ),
    (
        Figure("end to end", "ms", ("e2e_ms",), Better.LOWER, TimesBestPeer(4), TimesBestPeer(10)),
        *_SHORT_CUT,
    ),
)

_OURS_W4_FEW = ("bench.ours.w4", "--one-in", "100")

W4_INCREMENTAL = Workload(
    "W4-incremental",
    "an incremental checkpoint of the same state, records coming to 1 % of the keys",
    (
        Contestant(
            "Cutwater, RocksDB",
            "ours",
            (*_OURS_W4_FEW, "--backend", "rocksdb-incremental"),
            ("--warm-up", "2", "--seconds", "4", "--keys", "100000"),
        ),
        Contestant(
            "Cutwater, Memory",
            "ours",
            (*_OURS_W4_FEW, "--backend", "memory-incremental"),
            ("--warm-up", "2", "--seconds", "4", "--keys", "100000"),
        ),
        Contestant(
            "Flink SQL, RocksDB",
            "flink",
            (FLINK, "w4", "--ckpt", "2s", "--one-in", "100", "--seconds", "60", "--skip", "40", *_FLINK_ON_ROCKSDB),
            ("--seconds", "15", "--skip", "8", "--keys", "100000"),
        ),
    ),
    (
        Figure("end to end", "ms", ("e2e_ms",), Better.LOWER, TimesBestPeer(2), TimesBestPeer(5)),
        *_SHORT_CUT,
    ),
)

_QUICK_PAUSE = ("--warm-up", "5", "--window", "2", "--pairs", "1")

PAUSE = Workload(
    "pause",
    "full speed over 1 M keys: what a checkpoint every second does to the stream",
    (
        Contestant("Cutwater, checkpoints", "ours", ("bench.ours.pause",), _QUICK_PAUSE),
        Contestant(
            "Cutwater, stop the world",
            "ours",
            ("bench.ours.pause", "--stop-the-world"),
            _QUICK_PAUSE,
            "the naive algorithm: pause, drain, copy, resume",
        ),
    ),
    (
        Figure("cost of checkpoints", "%", ("cost_percent",), Better.LOWER, Bound(5.0), Bound(2.0)),
        Figure("CPU cost of checkpoints", "%", ("cpu_cost_percent",), Better.LOWER, Bound(5.0), Bound(2.0)),
        Figure("longest hole in the output", "ms", ("longest_hole_ms",), Better.LOWER, Bound(100.0), Bound(20.0)),
        Figure(
            "longest hole without checkpoints",
            "ms",
            ("longest_hole_without_ms",),
            Better.LOWER,
            Bound(100.0),
            Bound(20.0),
        ),
        Figure("synchronous part, median", "ms", ("sync_ms",), Better.LOWER, Bound(10.0), Bound(2.0)),
        Figure("synchronous part, longest", "ms", ("longest_sync_ms",), Better.LOWER, Bound(10.0), Bound(2.0)),
    ),
)

W5 = Workload(
    "W5",
    "SIGKILL of a worker until the first new output, warm driver",
    (
        Contestant("Cutwater", "ours", ("bench.ours.w5",), ("--run", "4")),
        Contestant(
            "Flink, standby TaskManager",
            "flink",
            ("flink_recovery.py", "--heartbeat", "500", "--reps", "1"),
            remark="a TaskManager dies, a warm one stands by",
        ),
        Contestant(
            "Spark SS, driver restart",
            "spark",
            (SPARK, "w5", "--store", "hdfs", "--batch", "200000", "--reps", "1"),
            remark="the whole driver dies and starts again",
        ),
    ),
    (Figure("outage", "s", ("kill_to_first_output_s", "kill_to_first_batch_s"), Better.LOWER, Bound(2.0), Bound(1.0)),),
)

_FLINK_W6 = (FLINK, "w6", "--seconds", "25", "--skip", "10")
_QUICK_W6 = ("--seconds", "12", "--skip", "6")
W6 = Workload(
    "W6",
    "latency through one key_by at 10,000 records/s, checkpoints every second",
    (
        Contestant(
            "Cutwater", "ours", ("bench.ours.w6",), _QUICK_W6, "stamped as the source hands out a batch, every 10 ms"
        ),
        Contestant(
            "Flink, buffer timeout 1 ms",
            "flink",
            (*_FLINK_W6, "--buffer-timeout", "1 ms"),
            _QUICK_W6,
            "stamped outside",
        ),
        Contestant(
            "Flink, default buffer timeout",
            "flink",
            (*_FLINK_W6, "--buffer-timeout", "100 ms"),
            _QUICK_W6,
            "stamped outside",
        ),
        Contestant(
            "Spark SS",
            "spark",
            (SPARK, "w6", "--seconds", "40", "--skip", "12"),
            ("--seconds", "30", "--skip", "6"),
            "stamped outside; its trigger takes what there is",
        ),
    ),
    (
        Figure("latency p50", "ms", ("p50_ms",), Better.LOWER, Bound(12.0), Bound(5.0)),
        Figure("latency p99", "ms", ("p99_ms",), Better.LOWER, Bound(50.0), Bound(20.0)),
        Figure("longest hole in the output (W7)", "ms", ("longest_hole_ms",), Better.LOWER, Bound(100.0), Bound(20.0)),
    ),
)

_QUICK_JAM = ("--count", "3", "--slow-count", "1")

JAM = Workload(
    "jam",
    "three keyed steps before a sink that takes 1 ms a record, sources at full speed, 10 MB of state: checkpoints in a jam",
    (
        Contestant(
            "Cutwater",
            "ours",
            ("bench.ours.jam",),
            (*_QUICK_JAM, "--no-depths"),
            "aligned, aligned with a timeout and unaligned, one job each; then five steps and two, with records of 5 KB",
        ),
    ),
    (
        Figure("unaligned, until every barrier is there", "ms", ("barriers_ms",), Better.LOWER, Bound(300), Bound(100)),
        Figure("aligned is so many times that", "times", ("aligned_times",), Better.HIGHER, Bound(20), Bound(50)),
        Figure("unaligned, the whole checkpoint", "ms", ("e2e_ms",), Better.LOWER, Bound(1000), Bound(500)),
        Figure(
            "five steps against two, as many bytes on their way",
            "%",
            ("depth_percent",),
            Better.LOWER,
            Bound(50.0),
            Bound(25.0),
        ),
        Figure(
            "most bytes in an inbox, in the last third of the checkpoints",
            "MB",
            ("inbox_at_last_mb",),
            Better.LOWER,
            Bound(10.0),
            Bound(5.0),
        ),
    ),
)

_FLINK_JAM = (
    FLINK,
    "jam",
    "--text",
    "500",
    "--slow",
    "164",
    "--keys",
    "6666",
    "--ckpt",
    "3s",
    "--pause",
    "1 s",
    "--seconds",
    "75",
    "--skip",
    "30",
)

JAM_PEER = Workload(
    "jam-peer",
    "the same jam with a sink that burns its millisecond, beside Flink with as much state",
    (
        Contestant(
            "Cutwater, unaligned",
            "ours",
            ("bench.ours.jam", "--sink", "burn", "--modes", "unaligned", "--no-depths"),
            _QUICK_JAM,
        ),
        Contestant(
            "Flink SQL, heap, unaligned", "flink", (*_FLINK_JAM, "--unaligned"), ("--seconds", "30", "--skip", "15")
        ),
        Contestant("Flink SQL, heap, aligned", "flink", _FLINK_JAM, ("--seconds", "30", "--skip", "15")),
    ),
    (
        Figure("the whole checkpoint", "ms", ("e2e_ms",), Better.LOWER, TimesBestPeer(1), TimesBestPeer(2)),
        Figure(
            "until every barrier is there", "ms", ("barriers_ms",), Better.LOWER, TimesBestPeer(1), TimesBestPeer(2)
        ),
    ),
)

TWO_SINKS = Workload(
    "two-sinks",
    "two sources, one of them slow, an operator that both share, two sinks: what a checkpoint takes from the fast path",
    (
        Contestant(
            "Cutwater",
            "ours",
            ("bench.ours.two_sinks",),
            ("--pairs", "1"),
            "aligned and unaligned, one job each",
        ),
    ),
    (
        Figure("unaligned, hole in the fast output", "ms", ("hole_ms",), Better.LOWER, Bound(500), Bound(100)),
        Figure(
            "aligned, hole in the fast output", "times that", ("aligned_times",), Better.HIGHER, Bound(5), Bound(20)
        ),
    ),
)

WORKLOADS = {
    workload.id: workload
    for workload in (W1, W1_ROCKSDB, W2, W3, W4, W4_INCREMENTAL, PAUSE, W5, W6, JAM, JAM_PEER, TWO_SINKS)
}
