"""Apache Flink (PyFlink) baselines. Run inside the Flink venv, e.g.

    python flink_bench.py w1-sql --backend hashmap --ckpt 1s

Everything except w5 runs in PyFlink's local mini-cluster: one JVM that holds the
JobManager and a TaskManager with `--par` slots; the REST endpoint is bound to a free port.
"""

import argparse
import json
import os
import socket
import sys
import threading
import time
import urllib.request

from measure import Meter, emit, med, note, pct, quiet, scratch
from pyflink.common import Configuration, Types, WatermarkStrategy
from pyflink.datastream import KeyedProcessFunction, RuntimeContext, StreamExecutionEnvironment
from pyflink.datastream.connectors.number_seq import NumberSequenceSource
from pyflink.datastream.state import ValueStateDescriptor
from pyflink.java_gateway import get_gateway
from pyflink.table import StreamTableEnvironment

KEYS = 1_000_000


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def rest(port, path):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=60) as r:
        return json.load(r)


def make_conf(a, tmp, port=None, extra=None):
    c = {
        "parallelism.default": str(a.par),
        "taskmanager.numberOfTaskSlots": str(a.par),
        "taskmanager.memory.managed.size": "1gb",
        "taskmanager.memory.network.max": "256mb",
        "restart-strategy.type": "none",
        "python.executable": sys.executable,
        "python.client.executable": sys.executable,
        "pipeline.object-reuse": "true" if a.object_reuse else "false",
        "state.backend.type": a.backend,
        "execution.checkpointing.dir": "file://" + os.path.join(tmp, "ckpt"),
        "execution.checkpointing.incremental": "true" if a.incremental else "false",
    }
    if a.ckpt != "off":
        c["execution.checkpointing.interval"] = a.ckpt
        c["execution.checkpointing.mode"] = "EXACTLY_ONCE"
    if port:
        c["rest.bind-port"] = str(port)
    if getattr(a, "minibatch", 0):
        c.update(
            {
                "table.exec.mini-batch.enabled": "true",
                "table.exec.mini-batch.allow-latency": "500 ms",
                "table.exec.mini-batch.size": str(a.minibatch),
                "table.optimizer.agg-phase-strategy": a.agg_phase,
            }
        )
    c.update(extra or {})
    for kv in a.conf:
        k, v = kv.split("=", 1)
        c[k] = v
    conf = Configuration()
    for k, v in c.items():
        conf.set_string(k, v)
    return conf


def envs(conf):
    env = StreamExecutionEnvironment.get_execution_environment(conf)
    return env, StreamTableEnvironment.create(env)


def discard(ds):
    """A JVM sink that drops every record (the DataStream twin of 'blackhole')."""
    jvm = get_gateway().jvm
    ds._j_data_stream.sinkTo(jvm.org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink())


def poll_checkpoints(port, out, stop):
    """Keeps the last-seen checkpoint statistics of the (only) job in `out`."""
    while not stop.is_set():
        try:
            jobs = rest(port, "/jobs")["jobs"]
            if jobs:
                out["job"] = jobs[0]["id"]
                out["ck"] = rest(port, f"/jobs/{jobs[0]['id']}/checkpoints")
        except Exception:
            pass
        stop.wait(0.2)


def run_sql(a, tmp, ddl, insert, extra=None):
    """Runs one bounded INSERT; returns (seconds by the job's own clock, checkpoint stats)."""
    port = free_port()
    _, t = envs(make_conf(a, tmp, port, extra))
    for d in ddl:
        t.execute_sql(d)
    if a.explain:
        note(t.explain_sql(insert))
    seen, stop = {}, threading.Event()
    th = threading.Thread(target=poll_checkpoints, args=(port, seen, stop), daemon=True)
    th.start()
    t0 = time.time()
    r = t.execute_sql(insert)
    res = r.get_job_client().get_job_execution_result().result()
    wall = time.time() - t0
    stop.set()
    th.join()
    return res.get_net_runtime() / 1000.0, wall, seen.get("ck")


def ck_summary(ck):
    if not ck or not ck.get("counts"):
        return {}
    done = [h for h in ck.get("history", []) if h["status"] == "COMPLETED"]
    out = {"ck_completed": ck["counts"]["completed"]}
    if done:
        out["ck_ms_median"] = med([h["end_to_end_duration"] for h in done])
        out["ck_size_mb"] = round(max(h["state_size"] for h in done) / 1e6, 1)
    return out


def repeat(a, workload, variant, n, once):
    secs, cpus, oth, cks = [], [], [], None
    base_s = base_c = 0.0
    for i in range(a.reps + a.warmup):
        if i == a.warmup and a.base:
            full, a.n = a.n, a.base
            with scratch() as tmp, Meter() as m:
                base_s = once(tmp)[0]
            base_c, a.n = m.cpu, full
            n -= a.base
            note(f"  run of {a.base}: job {base_s:.2f}s cpu {base_c:.2f}s (subtracted below)")
        if i >= a.warmup:
            quiet()
        with scratch() as tmp, Meter() as m:
            s, _, ck = once(tmp)
        s, m.cpu = max(0.001, s - base_s), m.cpu - base_c
        note(
            f"  run {i}: job {s:.2f}s wall {m.wall:.2f}s cpu {m.cpu:.2f}s "
            f"others {m.others:.2f} {n / s / 1e3:.0f}k/s {ck_summary(ck)}"
        )
        if i >= a.warmup:
            secs.append(s)
            cpus.append(m.cpu)
            oth.append(m.others)
            cks = ck
    emit(
        workload,
        "flink-2.3.0",
        variant,
        n=n,
        reps=a.reps,
        job_s=med(secs),
        rec_per_s=int(n / med(secs)),
        best=int(n / min(secs)),
        worst=int(n / max(secs)),
        cpu_us_per_rec=med(cpus) / n * 1e6,
        others_cores=med(oth),
        quietest=int(n / secs[oth.index(min(oth))]),
        quietest_others=min(oth),
        quietest_cpu_us=cpus[oth.index(min(oth))] / n * 1e6,
        **ck_summary(cks),
    )


def variant(a, *more):
    v = [a.backend, f"ckpt={a.ckpt}", f"par={a.par}"]
    if getattr(a, "minibatch", 0):
        v.append(f"minibatch={a.minibatch}/{a.agg_phase}")
    if a.object_reuse:
        v.append("object-reuse")
    return " ".join(v + [m for m in more if m] + a.conf)


# ---------------------------------------------------------------- W1 / W2 (SQL)
def w1_ddl(a, rows):
    return [
        f"""CREATE TABLE src (k BIGINT, v BIGINT) WITH ('connector'='datagen',
            'rows-per-second'='1000000000','number-of-rows'='{rows}',
            'fields.k.kind'='random','fields.k.min'='0','fields.k.max'='{KEYS - 1}',
            'fields.v.kind'='random','fields.v.min'='0','fields.v.max'='1000')""",
        "CREATE TABLE dst (k BIGINT, c BIGINT, s BIGINT) WITH ('connector'='blackhole')",
        "CREATE TABLE raw_out (k BIGINT, v BIGINT) WITH ('connector'='blackhole')",
    ]


def w1_sql(a):
    q = "INSERT INTO dst SELECT k, COUNT(*), SUM(v) FROM src GROUP BY k"
    repeat(a, "W1", "sql " + variant(a), a.n, lambda tmp: run_sql(a, tmp, w1_ddl(a, a.n), q))


def w1_src(a):
    """The generator alone: the ceiling that datagen itself sets."""
    q = "INSERT INTO raw_out SELECT k, v FROM src"
    repeat(a, "W1", "datagen only " + variant(a), a.n, lambda tmp: run_sql(a, tmp, w1_ddl(a, a.n), q))


def w2_sql(a):
    """a.n lines of 10 words. Word ids 0..9999, zipf-like (id = floor(10000^u)); the line is a
    string that is split with SPLIT() and exploded; 5 s event-time
    windows over timestamps that advance 1 ms per line."""
    w = " || ' ' || ".join(f"CAST(CAST(POWER(10000, r{i} / 1.0E6) AS INT) AS STRING)" for i in range(10))
    cols = ", ".join(f"r{i} INT" for i in range(10))
    opts = ", ".join(f"'fields.r{i}.min'='0','fields.r{i}.max'='999999'" for i in range(10))
    ddl = [
        f"""CREATE TABLE src (id BIGINT, {cols},
              ts AS TO_TIMESTAMP_LTZ(id, 3),
              line AS {w},
              WATERMARK FOR ts AS ts - INTERVAL '1' SECOND)
            WITH ('connector'='datagen','rows-per-second'='1000000000',
              'fields.id.kind'='sequence','fields.id.start'='0','fields.id.end'='{a.n - 1}',
              {opts})""",
        """CREATE TABLE dst (ws TIMESTAMP(3), word STRING, c BIGINT)
           WITH ('connector'='blackhole')""",
        "CREATE TABLE raw_out (line STRING) WITH ('connector'='blackhole')",
    ]
    if a.source_only:
        q = "INSERT INTO raw_out SELECT line FROM src"
    else:
        q = """INSERT INTO dst SELECT window_start, word, COUNT(*) FROM TABLE(
                 TUMBLE(DATA => (SELECT ts, w.word AS word FROM src
                   CROSS JOIN UNNEST(SPLIT(line, ' ')) AS w(word)),
                 TIMECOL => DESCRIPTOR(ts), SIZE => INTERVAL '5' SECOND))
               GROUP BY window_start, window_end, word"""
    repeat(
        a,
        "W2",
        ("lines only " if a.source_only else "sql lines/s ") + variant(a),
        a.n,
        lambda tmp: run_sql(a, tmp, ddl, q),
    )


# ---------------------------------------------------------------- W1 / W3 (Python DataStream)
class CountSum(KeyedProcessFunction):
    def open(self, ctx: RuntimeContext):
        self.st = ctx.get_state(ValueStateDescriptor("cs", Types.TUPLE([Types.LONG(), Types.LONG()])))

    def process_element(self, value, ctx):
        cur = self.st.value()
        cur = (1, value[1]) if cur is None else (cur[0] + 1, cur[1] + value[1])
        self.st.update(cur)
        yield (value[0], cur[0], cur[1])


def run_ds(a, tmp, keys, fn):
    port = free_port()
    extra = {
        "python.execution-mode": a.mode,
        "python.fn-execution.bundle.size": str(a.bundle),
        "python.state.cache-size": str(a.state_cache),
    }
    env, _ = envs(make_conf(a, tmp, port, extra))
    pair = Types.TUPLE([Types.LONG(), Types.LONG()])
    triple = Types.TUPLE([Types.LONG(), Types.LONG(), Types.LONG()])
    ds = env.from_source(NumberSequenceSource(1, a.n), WatermarkStrategy.no_watermarks(), "seq", Types.LONG())
    kv = ds.map(lambda i: ((i * 2654435761) % 4294967296 % keys, i & 1023), pair)
    if fn == "map":
        out = kv
    elif fn == "reduce":
        out = (
            kv.map(lambda x: (x[0], 1, x[1]), triple)
            .key_by(lambda x: x[0], Types.LONG())
            .reduce(lambda p, q: (p[0], p[1] + q[1], p[2] + q[2]))
        )
    else:
        out = kv.key_by(lambda x: x[0], Types.LONG()).process(CountSum(), triple)
    discard(out)
    seen, stop = {}, threading.Event()
    th = threading.Thread(target=poll_checkpoints, args=(port, seen, stop), daemon=True)
    th.start()
    t0 = time.time()
    res = env.execute(fn)
    wall = time.time() - t0
    stop.set()
    th.join()
    return res.get_net_runtime() / 1000.0, wall, seen.get("ck")


def embed(a):
    if a.mode == "thread":  # the embedded interpreter does not look into the venv by itself
        import pemja

        os.environ["PYTHONPATH"] = os.path.dirname(os.path.dirname(pemja.__file__))


def w1_ds(a):
    embed(a)
    repeat(
        a,
        "W1",
        f"python datastream reduce mode={a.mode} bundle={a.bundle} " + variant(a),
        a.n,
        lambda tmp: run_ds(a, tmp, KEYS, "reduce"),
    )


def w3_ds(a):
    embed(a)
    repeat(
        a,
        "W3",
        f"python {a.fn} mode={a.mode} bundle={a.bundle} " + variant(a),
        a.n,
        lambda tmp: run_ds(a, tmp, 1000, a.fn),
    )


# ---------------------------------------------------------------- W4 checkpoint duration
def ck_details(port, job, h):
    """Of one checkpoint: whole duration, bytes of state, bytes stored, then the slowest subtask's synchronous and asynchronous
    part, alignment and start delay, the bytes in flight, and until the last barrier had arrived everywhere."""
    d = rest(port, f"/jobs/{job}/checkpoints/details/{h['id']}")
    sync = asy = align = start = barriers = 0
    for vid in d["tasks"]:
        s = rest(port, f"/jobs/{job}/checkpoints/details/{h['id']}/subtasks/{vid}")
        for st in s["subtasks"]:
            if st["status"] != "completed":
                continue
            sync = max(sync, st["checkpoint"]["sync"])
            asy = max(asy, st["checkpoint"]["async"])
            align = max(align, st["alignment"]["duration"])
            start = max(start, st["start_delay"])
            barriers = max(barriers, st["start_delay"] + st["alignment"]["duration"])
    persisted = h.get("persisted_data", 0)
    return (
        h["end_to_end_duration"],
        h["state_size"],
        h["checkpointed_size"],
        sync,
        asy,
        align,
        start,
        persisted,
        barriers,
    )


def w4(a):
    """1M keys x ~100 B of aggregate state; unbounded datagen at a fixed rate (or, with
    --slow, as fast as a CPU-burning projection behind the aggregate lets it)."""
    with scratch() as tmp:
        port = free_port()
        extra = {
            "execution.checkpointing.unaligned.enabled": "true" if a.unaligned else "false",
            "execution.checkpointing.timeout": "55 s",
            "execution.checkpointing.min-pause": a.pause,
            "web.refresh-interval": "500",
            "execution.checkpointing.num-retained": "1",
            "web.checkpoints.history": "100",
        }
        _, t = envs(make_conf(a, tmp, port, extra))
        t.execute_sql(f"""CREATE TABLE src (k BIGINT, v BIGINT) WITH ('connector'='datagen',
            'rows-per-second'='{a.rate}',
            'fields.k.min'='0','fields.k.max'='{a.keys - 1}',
            'fields.v.min'='0','fields.v.max'='1000000000')""")
        t.execute_sql("""CREATE TABLE dst (k BIGINT, c BIGINT, s BIGINT, m STRING)
                         WITH ('connector'='blackhole')""")
        few = (
            f"CASE WHEN UNIX_TIMESTAMP() < {int(time.time() + a.skip - 4)} THEN k ELSE k / {a.one_in} * {a.one_in} END"
        )
        sel = f"""SELECT k, COUNT(*) AS c, SUM(v) AS s, MAX(LPAD(CAST(v AS STRING), 80, 'x')) AS m
                  FROM (SELECT {"k" if a.one_in == 1 else few} AS k, v FROM src) GROUP BY k"""
        q = f"INSERT INTO dst {sel}"
        if a.slow:
            q = f"INSERT INTO dst SELECT k, c, s, m FROM ({sel}) WHERE SHA512(REPEAT(m, {a.slow})) <> 'x'"
        r = t.execute_sql(q)
        jc = r.get_job_client()
        t0 = time.time()
        best = None
        while time.time() - t0 < a.seconds:
            time.sleep(0.25)
            try:
                job = rest(port, "/jobs")["jobs"][0]["id"]
                ck = rest(port, f"/jobs/{job}/checkpoints")
                vs = rest(port, f"/jobs/{job}")["vertices"]
            except Exception:
                continue
            best = (job, ck, vs)
        job, ck, vs = best
        recs = [v["metrics"]["read-records"] for v in vs]
        done = [
            h for h in ck["history"] if h["status"] == "COMPLETED" and h["trigger_timestamp"] / 1000.0 >= t0 + a.skip
        ]
        samples = [ck_details(port, job, h) for h in done]
        jc.cancel().result()
        name = (
            f"{a.backend}{' incremental' if a.incremental else ' full'}"
            f"{' unaligned' if a.unaligned else ' aligned'}"
            f" rate={a.rate} slow={a.slow} one-in={a.one_in}"
        )
        if not samples:
            emit(
                "W4",
                "flink-2.3.0",
                name,
                completed=0,
                counts=ck["counts"],
                pending=[h["status"] for h in ck["history"]][:5],
            )
            return

        def col(i):
            return [s[i] for s in samples]

        emit(
            "W4",
            "flink-2.3.0",
            name,
            completed=len(samples),
            e2e_ms=med(col(0)),
            e2e_max_ms=max(col(0)),
            state_mb=med(col(1)) / 1e6,
            checkpointed_mb=med(col(2)) / 1e6,
            sync_ms=med(col(3)),
            async_ms=med(col(4)),
            align_ms=med(col(5)),
            start_delay_ms=med(col(6)),
            persisted_inflight_mb=med(col(7)) / 1e6,
            records_read=max(recs),
            rec_per_s=int(max(recs) / a.seconds),
        )


# ---------------------------------------------------------------- a jammed pipeline
def jam(a):
    """Three keyed steps (running aggregates that keep the largest text of each key and pass every record on), then a
    projection that burns about a millisecond a record: SQL has nothing that sleeps. `--keys` of each step, texts of `--text`
    letters; sources at full speed. How long the projection takes is measured by the records that pass."""
    with scratch() as tmp:
        port = free_port()
        extra = {
            "execution.checkpointing.unaligned.enabled": "true" if a.unaligned else "false",
            "execution.checkpointing.timeout": "5 min",
            "execution.checkpointing.min-pause": a.pause,
            "execution.checkpointing.num-retained": "1",
            "web.refresh-interval": "500",
            "web.checkpoints.history": "100",
        }
        _, t = envs(make_conf(a, tmp, port, extra))
        t.execute_sql("""CREATE TABLE src (v BIGINT, pt AS PROCTIME()) WITH ('connector'='datagen',
            'rows-per-second'='100000000', 'fields.v.min'='0','fields.v.max'='1000000000')""")
        t.execute_sql("CREATE TABLE dst (v BIGINT, h STRING) WITH ('connector'='blackhole')")
        sel = f"SELECT v, pt, LPAD(CAST(v AS STRING), {a.text}, 'x') AS m FROM src"
        for step in range(a.steps):
            sel = f"""SELECT v, pt, MAX(m) OVER (PARTITION BY MOD(v + {step}, {a.keys}) ORDER BY pt
                      ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS m FROM ({sel})"""
        jc = t.execute_sql(f"INSERT INTO dst SELECT v, SHA512(REPEAT(m, {a.slow})) FROM ({sel})").get_job_client()
        t0 = time.time()
        while time.time() - t0 < a.seconds:
            time.sleep(0.5)
        job = rest(port, "/jobs")["jobs"][0]["id"]
        ck = rest(port, f"/jobs/{job}/checkpoints")
        done = [
            h for h in ck["history"] if h["status"] == "COMPLETED" and h["trigger_timestamp"] / 1000.0 >= t0 + a.skip
        ]
        samples = [ck_details(port, job, h) for h in done]
        rest(port, f"/jobs/{job}")  # asking makes it gather the metrics, for later questions
        time.sleep(2)
        asked_at, last = time.time(), rest(port, f"/jobs/{job}")["vertices"][-1]
        jc.cancel().result()
        if not samples:
            raise SystemExit(f"no checkpoint completed: {ck['counts']}")
        col = list(zip(*samples, strict=True))
        emit(
            "jam",
            "flink-2.3.0",
            f"{a.backend} {'unaligned' if a.unaligned else 'aligned'} steps={a.steps} slow={a.slow} text={a.text}",
            completed=len(samples),
            e2e_ms=med(col[0]),
            e2e_max_ms=max(col[0]),
            state_mb=med(col[1]) / 1e6,
            sync_ms=med(col[3]),
            async_ms=med(col[4]),
            align_ms=med(col[5]),
            start_delay_ms=med(col[6]),
            in_flight_mb=med(col[7]) / 1e6,
            barriers_ms=med(col[8]),
            sink_ms_per_rec=a.par * (asked_at - t0) * 1e3 / max(1, last["metrics"]["read-records"]),
        )


# ---------------------------------------------------------------- W6 latency
def w6(a):
    """Records come from socket_feed.py-style paced TCP lines 'key,micros'; latency is taken
    behind the keyed aggregate (SQL: CURRENT_ROW_TIMESTAMP(), ms resolution; Python: time.time()),
    for a sample of about one in 20 that is then collected. The SQL sample is drawn on an
    aggregate's value: a filter on the key would be pushed below the keyBy."""
    from socket_feed import Feed

    with scratch() as tmp:
        extra = {
            "execution.buffer-timeout.interval": a.buffer_timeout,
            "python.execution-mode": a.mode,
            "python.fn-execution.bundle.time": str(a.bundle_time),
            "python.fn-execution.bundle.size": str(a.bundle),
        }
        feed = Feed(a.rate, a.seconds, KEYS).start()
        env, t = envs(make_conf(a, tmp, None, extra))
        js = env._j_stream_execution_environment.socketTextStream("127.0.0.1", feed.port)
        from pyflink.datastream import DataStream

        ds = DataStream(js)
        lat = []
        if a.api == "sql":
            t.create_temporary_view("lines", t.from_data_stream(ds))
            r = t.execute_sql("""SELECT mts,
                CAST(EXTRACT(EPOCH FROM CURRENT_ROW_TIMESTAMP()) AS BIGINT) * 1000
                  + EXTRACT(MILLISECOND FROM CURRENT_ROW_TIMESTAMP()) AS now_ms FROM (
                SELECT k, COUNT(*) AS c, MAX(ts) AS mts FROM (
                  SELECT CAST(SPLIT_INDEX(f0, ',', 0) AS BIGINT) AS k,
                         CAST(SPLIT_INDEX(f0, ',', 1) AS BIGINT) AS ts FROM lines)
                GROUP BY k) WHERE MOD(mts, 20) = 0""")
            with r.collect() as rows:
                for row in rows:
                    if row.get_row_kind().value in (0, 2):
                        lat.append((row[0] / 1e6, row[1] / 1e3 - row[0] / 1e6))
        else:
            pair = Types.TUPLE([Types.LONG(), Types.LONG(), Types.LONG()])

            def parse(s):
                k, ts = s.split(",")
                return int(k), 1, int(ts)

            out = (
                ds.map(parse, pair)
                .key_by(lambda x: x[0], Types.LONG())
                .reduce(lambda p, q: (p[0], p[1] + q[1], max(p[2], q[2])))
                .filter(lambda x: x[0] % 20 == 0)
                .map(lambda x: (x[2], int(time.time() * 1e6)), Types.TUPLE([Types.LONG(), Types.LONG()]))
            )
            with out.execute_and_collect() as rows:
                for row in rows:
                    lat.append((row[0] / 1e6, (row[1] - row[0]) / 1e6))
        feed.stop()
        first = min(x[0] for x in lat)
        ms = [x[1] * 1e3 for x in lat if x[0] - first >= a.skip]
        emit(
            "W6",
            "flink-2.3.0",
            f"{a.api} {a.mode if a.api != 'sql' else ''} buffer-timeout={a.buffer_timeout} " + variant(a),
            rate=a.rate,
            samples=len(ms),
            p50_ms=pct(ms, 50),
            p90_ms=pct(ms, 90),
            p99_ms=pct(ms, 99),
            p999_ms=pct(ms, 99.9),
            max_ms=max(ms),
        )


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("cmd", choices=["w1-sql", "w1-src", "w1-ds", "w2-sql", "w3-ds", "w4", "jam", "w6"])
    p.add_argument("--n", type=int, default=20_000_000)
    p.add_argument("--par", type=int, default=2)
    p.add_argument("--backend", default="hashmap", choices=["hashmap", "rocksdb", "forst"])
    p.add_argument("--ckpt", default="1s", help="interval or 'off'")
    p.add_argument("--incremental", action="store_true")
    p.add_argument("--unaligned", action="store_true")
    p.add_argument("--minibatch", type=int, default=0)
    p.add_argument("--agg-phase", default="AUTO")
    p.add_argument("--object-reuse", action="store_true")
    p.add_argument("--conf", action="append", default=[], help="extra Flink key=value")
    p.add_argument("--reps", type=int, default=3)
    p.add_argument("--warmup", type=int, default=1)
    p.add_argument(
        "--base",
        type=int,
        default=0,
        help="subtract a run of this many records, to take out the start-up of the job and of its Python workers",
    )
    p.add_argument("--explain", action="store_true")
    p.add_argument("--source-only", action="store_true")
    p.add_argument("--mode", default="process", choices=["process", "thread"])
    p.add_argument("--fn", default="process", choices=["map", "reduce", "process"])
    p.add_argument("--bundle", type=int, default=1000)
    p.add_argument("--bundle-time", type=int, default=1000)
    p.add_argument("--state-cache", type=int, default=1000)
    p.add_argument("--rate", type=int, default=0, help="records/s; default 300000 (w4), 10000 (w6)")
    p.add_argument("--keys", type=int, default=KEYS)
    p.add_argument("--seconds", type=float, default=40)
    p.add_argument("--skip", type=float, default=20)
    p.add_argument("--slow", type=int, default=0)
    p.add_argument("--pause", default="0 s")
    p.add_argument("--steps", type=int, default=3)
    p.add_argument("--text", type=int, default=4096)
    p.add_argument(
        "--one-in", type=int, default=1, help="w4: before --skip ends, records begin to come to one in so many keys"
    )
    p.add_argument("--api", default="sql", choices=["sql", "python"])
    p.add_argument("--buffer-timeout", default="100 ms")
    a = p.parse_args()
    a.rate = a.rate or (10_000 if a.cmd == "w6" else 300_000)
    {
        "w1-sql": w1_sql,
        "w1-src": w1_src,
        "w1-ds": w1_ds,
        "w2-sql": w2_sql,
        "w3-ds": w3_ds,
        "w4": w4,
        "jam": jam,
        "w6": w6,
    }[a.cmd](a)


if __name__ == "__main__":
    main()
