"""Spark Real-Time Mode (RTM) baselines: Kafka -> groupBy(key).agg(count, sum, max) -> Kafka.
Run inside the Spark venv (pyspark, confluent-kafka, numpy), e.g.

    PEERS_KAFKA_LIB=... PEERS_SPARK_KAFKA=... python spark_rtm_bench.py w6 --trigger "5 seconds"

$PEERS_KAFKA_LIB: broker jars (kafka_broker.py). $PEERS_SPARK_KAFKA: directory with the Spark
Kafka connector, its token provider, kafka-clients and commons-pool2.
Producer, consumer, broker and Spark are four processes; all of them share the cores.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import threading
import time

from measure import Meter, cpu_seconds, emit, med, note, pct, quiet, scratch

ME = os.path.abspath(__file__)
JARS = os.environ.get(
    "PEERS_SPARK_KAFKA", os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".venvs", "spark-kafka")
)
PEER = "pyspark-4.3.0-rtm"
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
_P = "org.apache.spark.sql.execution.streaming.state."
STORES = {"hdfs": _P + "HDFSBackedStateStoreProvider", "rocksdb": _P + "RocksDBStateStoreProvider"}


# ------------------------------------------------------------------ Kafka side
def topics(addr, *names, parts=2):
    from confluent_kafka.admin import AdminClient, NewTopic

    ad = AdminClient({"bootstrap.servers": addr})
    for f in ad.create_topics([NewTopic(n, parts, 1) for n in names]).values():
        f.result(120)


def depth(c, topic, parts=2):
    from confluent_kafka import TopicPartition

    return sum(c.get_watermark_offsets(TopicPartition(topic, p), timeout=30)[1] for p in range(parts))


def watcher(addr):
    from confluent_kafka import Consumer

    return Consumer({"bootstrap.servers": addr, "group.id": "w", "enable.auto.commit": False})


def produce(a):
    """a.rate records/s for a.seconds, in 1 ms ticks. Value: 'v,send time in us'."""
    from confluent_kafka import Producer

    p = Producer({"bootstrap.servers": a.addr, "linger.ms": 1, "acks": 1, "queue.buffering.max.messages": 2000000})
    t0, i = time.time(), 0
    n = int(a.rate * a.seconds)
    late = 0.0
    while i < n and not os.path.exists(a.out):
        due = min(n, int((time.time() - t0) * a.rate))
        late = max(late, time.time() - t0 - i / a.rate)
        while i < due:
            k = (i * 2654435761 % 4294967296) % a.keys
            p.produce(a.topic, f"{i % 1024},{int(time.time() * 1e6)}", str(k), i % 2)
            i += 1
        p.poll(0)
        time.sleep(0.001)
    p.flush(60)
    print(json.dumps({"sent": i, "late_s": round(late, 3), "t0": t0}), flush=True)


def consume(a):
    """Reads a.topic from its start until the file a.out + '.stop' exists; saves arrays."""
    import numpy as np
    from confluent_kafka import Consumer, TopicPartition

    c = Consumer(
        {
            "bootstrap.servers": a.addr,
            "group.id": "c",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": 50,
            "fetch.queue.backoff.ms": 1,
        }
    )
    c.assign([TopicPartition(a.topic, p, 0) for p in range(2)])
    rows = []
    while True:
        ms = c.consume(500, 0.002)
        now = time.time()
        rows.extend((now, m.key(), m.value()) for m in ms if m.error() is None)
        if not ms and os.path.exists(a.out + ".stop"):
            break
    recv = np.array([r[0] for r in rows])
    k = np.array([int(r[1]) for r in rows], dtype=np.int64)
    v = np.array([[int(x) for x in r[2].split(b",")] for r in rows], dtype=np.int64).reshape(
        len(rows), -1 if rows else 1
    )
    np.savez(a.out, recv=recv, k=k, v=v)
    print("saved", len(rows), flush=True)


# ------------------------------------------------------------------ Spark side
def session(a, tmp, slots=None):
    from pyspark.sql import SparkSession

    b = (
        SparkSession.builder.master(f"local[{slots or a.slots}]")
        .appName("peers-rtm")
        .config("spark.driver.memory", "6g")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.local.dir", tmp)
        .config("spark.jars", ",".join(os.path.join(JARS, j) for j in sorted(os.listdir(JARS))))
        .config("spark.sql.shuffle.partitions", str(a.par))
        .config("spark.sql.warehouse.dir", os.path.join(tmp, "wh"))
        .config("spark.sql.streaming.numRecentProgressUpdates", "10000")
        .config("spark.sql.streaming.stateStore.providerClass", STORES[a.store])
    )
    for kv in a.conf:
        b = b.config(*kv.split("=", 1))
    s = b.getOrCreate()
    s.sparkContext.setLogLevel(os.environ.get("PEERS_LOG", "ERROR"))
    return s


def source(spark, a, topic=None):
    return (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", a.addr)
        .option("subscribe", topic or a.topic)
        .option("startingOffsets", "earliest")
        .option("failOnDataLoss", "false")
        .load()
    )


def parsed(df):
    from pyspark.sql import functions as F

    p = F.split(F.col("value").cast("string"), ",")
    return df.select(
        F.col("key").cast("string").alias("k"), p[0].cast("long").alias("v"), p[1].cast("long").alias("ts")
    )


def agg(df):
    from pyspark.sql import functions as F

    return (
        parsed(df)
        .groupBy("k")
        .agg(F.count("*").alias("c"), F.sum("v").alias("s"), F.max("ts").alias("m"))
        .select(F.col("k").alias("key"), F.concat_ws(",", "c", "s", "m").alias("value"))
    )


def writer(df, a, ckpt, trigger=None):
    w = df.writeStream.outputMode("update").option("checkpointLocation", ckpt)
    if a.sink == "kafka":
        w = (
            w.format("kafka")
            .option("kafka.bootstrap.servers", a.addr)
            .option("topic", a.topic + "-out")
            .option("kafka.linger.ms", "0")
        )
    else:
        w = w.format(a.sink)
    t = trigger or a.trigger
    return w.trigger(realTime=t) if a.mode == "rtm" else w.trigger(processingTime=t)


def child(a):
    """One Spark driver: optional prefill, then the query; prints PROGRESS lines until killed
    or until the file a.out + '.stop' exists."""
    with scratch() as tmp:
        spark = session(a, tmp)
        if a.n:
            from pyspark.sql import functions as F

            (
                spark.range(0, a.n, 1, 2)
                .select(
                    (F.pmod(F.col("id") * F.lit(2654435761), F.lit(4294967296)) % a.keys).cast("string").alias("key"),
                    F.concat_ws(",", (F.col("id") % 1024).cast("string"), F.lit("0")).alias("value"),
                    (F.col("id") % 2).cast("int").alias("partition"),
                )
                .write.format("kafka")
                .option("kafka.bootstrap.servers", a.addr)
                .option("topic", a.topic)
                .save()
            )
            print("FILLED", flush=True)
        print("START", time.time(), flush=True)
        q = writer(agg(source(spark, a)), a, a.ckpt).start()
        seen = 0
        while not os.path.exists(a.out + ".stop"):
            ps = q.recentProgress
            for p in ps[seen:]:
                print(
                    "PROGRESS "
                    + json.dumps(
                        {
                            "batch": p["batchId"],
                            "at": time.time(),
                            "ts": p["timestamp"],
                            "rows": p["numInputRows"],
                            "ms": p["durationMs"],
                            "state": [
                                {x: s[x] for x in ("numRowsTotal", "commitTimeMs", "numShufflePartitions")}
                                for s in p["stateOperators"]
                            ],
                        }
                    ),
                    flush=True,
                )
            seen = len(ps)
            if not q.isActive:
                print("FAILED " + str(q.exception())[:1500].replace("\n", " | "), flush=True)
                break
            time.sleep(0.05)
        q.stop()
        spark.stop()


class Child:
    """A subprocess of this script; its stdout lines are kept with their arrival time."""

    def __init__(self, cmd, a, **over):
        d = dict(vars(a), **over)
        args = [sys.executable, ME, cmd]
        for k in (
            "addr",
            "topic",
            "out",
            "ckpt",
            "n",
            "keys",
            "rate",
            "seconds",
            "trigger",
            "mode",
            "sink",
            "store",
            "par",
            "slots",
        ):
            args += [f"--{k}", str(d[k])]
        for c in d["conf"]:
            args += ["--conf", c]
        self.err = open(os.path.join(os.path.dirname(d["out"]), f"{cmd}-{time.time()}.err"), "w")
        self.p = subprocess.Popen(args, stdout=subprocess.PIPE, stderr=self.err, text=True, start_new_session=True)
        self.lines = []
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for ln in self.p.stdout:
            self.lines.append(ln.rstrip("\n"))

    def wait_line(self, word, limit):
        t0 = time.time()
        while time.time() - t0 < limit:
            for ln in list(self.lines):
                if ln.startswith(word):
                    return ln
            if any(x.startswith("FAILED") for x in self.lines) or self.p.poll() is not None:
                time.sleep(0.3)
                raise RuntimeError(" ".join(self.lines[-3:]) + open(self.err.name).read()[-1500:])
            time.sleep(0.02)
        raise TimeoutError(word)

    def progress(self):
        return [json.loads(x[9:]) for x in list(self.lines) if x.startswith("PROGRESS ")]

    def kill(self):
        if self.p.poll() is None:
            os.killpg(self.p.pid, signal.SIGKILL)  # the group started above
        self.p.wait()


# ------------------------------------------------------------------ workloads
def seconds_table(recv, lat_ms, t0):
    import numpy as np

    out = []
    sec = np.floor(recv - t0).astype(int)
    for s in range(int(sec.max()) + 1):
        x = lat_ms[sec == s]
        out.append(
            (s, len(x))
            + (
                (round(float(np.percentile(x, 50)), 1), round(float(np.percentile(x, 99)), 1), round(float(x.max()), 1))
                if len(x)
                else (None,) * 3
            )
        )
    return out


def w6(a):
    """Latency from the producer's clock to the consumer's, and the holes in the output."""
    import numpy as np
    from kafka_broker import Broker

    quiet()
    with scratch() as tmp, Broker() as b:
        a.addr, a.out, a.ckpt, a.n = b.addr, os.path.join(tmp, "o"), os.path.join(tmp, "ckpt"), 0
        topics(a.addr, a.topic, a.topic + "-out")
        kids = []
        try:
            if a.mode != "floor":
                sp = Child("child", a)
                kids.append(sp)
                sp.wait_line("START", 400)
                time.sleep(1)
            cons = Child("consume", a, topic=a.topic + ("-out" if a.mode != "floor" else ""))
            kids.append(cons)
            if a.mode == "floor":
                time.sleep(3)
            stop = os.path.join(tmp, "no")
            prod = Child("produce", a, seconds=a.seconds + a.warm + a.limit, out=stop)
            kids.append(prod)
            if a.mode != "floor":  # a window that opens before the first output says nothing
                w = watcher(a.addr)
                t_lim = time.time() + a.limit
                while time.time() < t_lim and (
                    depth(w, a.topic + "-out") == 0 or (a.batches and len(sp.progress()) < a.batches)
                ):
                    if any(x.startswith("FAILED") for x in sp.lines):
                        raise RuntimeError(sp.lines[-1])
                    time.sleep(0.2)
                w.close()
            time.sleep(a.warm)
            c0 = cpu_seconds(sp.p.pid) if a.mode != "floor" else 0
            with Meter() as m:
                t1 = time.time()
                while time.time() - t1 < a.seconds:
                    if a.mode != "floor" and any(x.startswith("FAILED") for x in sp.lines):
                        raise RuntimeError(sp.lines[-1])
                    time.sleep(0.2)
            cpu = cpu_seconds(sp.p.pid) - c0 if a.mode != "floor" else 0
            open(stop, "w").close()
            prod.p.wait(90)
            time.sleep(2)
            progs = sp.progress() if a.mode != "floor" else []
            open(a.out + ".stop", "w").close()
            cons.wait_line("saved", 120)
        finally:
            for k in kids:
                k.kill()
        z = np.load(a.out + ".npz")
        if not len(z["recv"]):
            raise RuntimeError("no output")
        recv, v = z["recv"], z["v"]
        lat = (recv - v[:, -1] / 1e6) * 1e3
        keep = (v[:, -1] / 1e6 >= t1) & (v[:, -1] / 1e6 < t1 + a.seconds)
        ms = lat[keep]
        r = np.sort(recv[(recv >= t1) & (recv < t1 + a.seconds)])
        d = np.diff(r) * 1e3
        holes = sorted((round(float(x)) for x in d if x > a.hole), reverse=True)
        pr = json.loads(prod.lines[-1])
        use = [p for p in progs if t1 <= p["at"] <= t1 + a.seconds + 2]
        if a.table:
            for row in seconds_table(recv[keep], ms, t1):
                note("  s={} n={} p50={} p99={} max={}".format(*row))
            for p in use:
                note(
                    "  batch",
                    p["batch"],
                    "ended reported at s=%.1f" % (p["at"] - t1),
                    p["rows"],
                    json.dumps(p["ms"]),
                    p["state"],
                )
            note(
                "  holes >",
                a.hole,
                "ms:",
                [(round(float(r[i] - t1), 1), round(float(d[i]))) for i in np.nonzero(d > a.hole)[0]],
            )
        emit(
            "W6",
            PEER if a.mode == "rtm" else "kafka-alone" if a.mode == "floor" else "pyspark-4.3.0",
            f"{a.mode} {a.store} trigger={a.trigger} keys={a.keys} local[{a.slots}] {' '.join(a.conf)}".strip(),
            rate=a.rate,
            seconds=a.seconds,
            sent=pr["sent"],
            out=int(keep.sum()),
            p50_ms=pct(ms, 50),
            p90_ms=pct(ms, 90),
            p99_ms=pct(ms, 99),
            p999_ms=pct(ms, 99.9),
            max_ms=float(ms.max()),
            share_over_100ms=float((ms > 100).mean()),
            batches=len(use),
            holes=len(holes),
            hole_med_ms=med(holes) if holes else None,
            hole_max_ms=holes[0] if holes else None,
            producer_late_s=pr["late_s"],
            spark_cpu_us_per_rec=cpu / (a.rate * a.seconds) * 1e6,
            state_rows=sum(s["numRowsTotal"] for s in use[-1]["state"]) if use else None,
            commit_ms=[s["commitTimeMs"] for p in use[-3:] for s in p["state"]],
            others_cores=m.others,
        )


def w1(a):
    """Drains a pre-filled topic. The rate is read from the growth of the output topic (one
    update per record), or, with another sink, from the batches' own row counts."""
    from kafka_broker import Broker

    quiet()
    with scratch() as tmp, Broker() as b:
        a.addr, a.out, a.ckpt = b.addr, os.path.join(tmp, "o"), os.path.join(tmp, "ckpt")
        topics(a.addr, a.topic, a.topic + "-out")
        sp = Child("child", a)
        w = watcher(a.addr)
        try:
            sp.wait_line("FILLED", 900)
            sp.wait_line("START", 60)
            t0, c0 = time.time(), cpu_seconds(sp.p.pid)
            pts = []
            with Meter() as m:
                while time.time() - t0 < a.limit:
                    done = depth(w, a.topic + "-out") if a.sink == "kafka" else sum(p["rows"] for p in sp.progress())
                    pts.append((time.time() - t0, done, cpu_seconds(sp.p.pid) - c0))
                    if done >= a.n or any(x.startswith("FAILED") for x in sp.lines):
                        break
                    if a.mode != "rtm" and sum(p["rows"] for p in sp.progress()) >= a.n:
                        break
                    time.sleep(0.1)
            time.sleep(0.5)
            progs = sp.progress()
        finally:
            sp.kill()
            w.close()
        moved = [p for p in pts if p[1] > 0]
        end = pts[-1]
        half = next((p for p in pts if p[1] >= a.n * 0.2), end)  # skip the first fifth: warm-up
        n1 = end[1] - half[1]
        rate = n1 / (end[0] - half[0]) if end[0] > half[0] else None
        emit(
            "W1",
            PEER if a.mode == "rtm" else "pyspark-4.3.0",
            f"{a.mode} {a.store} sink={a.sink} trigger={a.trigger} local[{a.slots}] {' '.join(a.conf)}".strip(),
            n=a.n,
            keys=a.keys,
            out=end[1],
            rec_per_s=int(rate) if rate else None,
            rec_per_s_from_first_output=int(end[1] / (end[0] - moved[0][0] + 0.1)) if moved else 0,
            drain_s=end[0],
            first_output_s=moved[0][0] if moved else None,
            spark_cpu_us_per_rec=end[2] / max(1, end[1]) * 1e6,
            batches=[
                (p["rows"], p["ms"].get("triggerExecution"), [s["commitTimeMs"] for s in p["state"]]) for p in progs
            ][:8],
            others_cores=m.others,
            failed=next((x[:400] for x in sp.lines if x.startswith("FAILED")), None),
        )


def crash(a):
    """SIGKILL of the driver a.kill_at seconds after a batch boundary; restart from the same
    checkpoint; count what comes out twice."""
    import numpy as np
    from kafka_broker import Broker

    quiet()
    with scratch() as tmp, Broker() as b:
        a.addr, a.out, a.ckpt, a.n = b.addr, os.path.join(tmp, "o"), os.path.join(tmp, "ckpt"), 0
        topics(a.addr, a.topic, a.topic + "-out")
        kids = []
        try:
            sp = Child("child", a)
            kids.append(sp)
            sp.wait_line("START", 400)
            cons = Child("consume", a, topic=a.topic + "-out")
            prod = Child("produce", a, seconds=a.seconds, out=os.path.join(tmp, "no"))
            kids += [cons, prod]
            with Meter() as m:
                sp.wait_line("PROGRESS", 300)  # the first batch is committed
                time.sleep(a.kill_at)
                committed = sum(p["rows"] for p in sp.progress())
                nb = len(sp.progress())
                t_kill = time.time()
                sp.kill()
                sp2 = Child("child", a, out=os.path.join(tmp, "o2"))
                kids.append(sp2)
                sp2.wait_line("START", 400)
                prod.p.wait()
                sent = json.loads(prod.lines[-1])["sent"]
                t_end, last, same = time.time() + a.limit, -1, 0
                w = watcher(a.addr)
                while time.time() < t_end and same < 20:  # until the output stands still
                    n = depth(w, a.topic + "-out")
                    same = same + 1 if n == last and n >= sent else 0
                    last = n
                    time.sleep(0.5)
                w.close()
                failed = next((x[:400] for x in sp2.lines if x.startswith("FAILED")), None)
            open(a.out + ".stop", "w").close()
            cons.wait_line("saved", 120)
        finally:
            for k in kids:
                k.kill()
        z = np.load(a.out + ".npz")
        kc = z["k"] * 10_000_000 + z["v"][:, 0]
        uniq, _first, _cnt = np.unique(kc, return_index=True, return_counts=True)
        r = np.sort(z["recv"])
        after = r[r > t_kill + 0.5]
        top = {}
        for k, c in zip(z["k"].tolist(), z["v"][:, 0].tolist(), strict=False):
            if c > top.get(k, 0):
                top[k] = c
        emit(
            "W5",
            PEER,
            f"driver kill -9 {a.store} trigger={a.trigger} keys={a.keys} killed {a.kill_at:.0f} s after commit",
            sent=sent,
            out=len(kc),
            distinct=len(uniq),
            duplicates=int(len(kc) - len(uniq)),
            missing=int(sent - len(uniq)),
            state_total=sum(top.values()),
            state_exact=sum(top.values()) == sent,
            valid=bool(len(after)),
            failed=failed,  # no output after the restart: not a result
            committed_before_kill=committed,
            batches_before=nb,
            kill_to_first_output_s=float(after[0] - t_kill) if len(after) else None,
            before_kill_out=int((r <= t_kill + 0.5).sum()),
            others_cores=m.others,
        )


def refuse(a):
    """What RTM turns down, with the start of the exact message."""
    from kafka_broker import Broker

    with scratch() as tmp, Broker() as b:
        a.addr = b.addr
        topics(a.addr, "t", "t2", "t-out")
        a.topic = "t"
        spark = session(a, tmp, 8)
        import pandas as pd
        from pyspark.sql import Row
        from pyspark.sql import functions as F
        from pyspark.sql.streaming import StatefulProcessor
        from pyspark.sql.streaming.state import GroupStateTimeout

        spark.sparkContext.setLogLevel("OFF")
        cfg = spark.conf

        class Run(StatefulProcessor):
            def init(self, handle):
                self.st = handle.getValueState("c", "c long")

            def handleInputRows(self, key, rows, timerValues):
                for r in rows:  # pandas frames, or Rows
                    if isinstance(r, pd.DataFrame):
                        yield pd.DataFrame({"key": [key[0]], "value": ["1"]})
                    else:
                        yield Row(key=key[0], value="1")

            def close(self):
                pass

        def step(key, pdfs, state):
            for p in pdfs:
                yield pd.DataFrame({"key": [key[0]], "value": [str(len(p))]})

        ev = "k string, v long, ts long"
        s = lambda t="t": parsed(source(spark, a, t))  # noqa: E731
        tm = lambda d: d.withColumn("t", F.timestamp_micros("ts"))  # noqa: E731
        kv = lambda d: d.select(F.col("k").alias("key"), F.lit("1").alias("value"))  # noqa: E731
        out = "key string, value string"
        cases = {
            "groupBy.agg, update, Kafka (control)": lambda: (agg(source(spark, a)), {}),
            "dropDuplicates": lambda: (kv(s().dropDuplicates(["k"])), {}),
            "Python UDF (stateless)": lambda: (
                s().select(F.udf(lambda x: x, "string")("k").alias("key"), F.lit("1").alias("value")),
                {},
            ),
            "mapInPandas": lambda: (kv(s().mapInPandas(lambda it: it, ev)), {}),
            "applyInPandasWithState": lambda: (
                s().groupBy("k").applyInPandasWithState(step, out, "c long", "update", GroupStateTimeout.NoTimeout),
                {},
            ),
            "transformWithState (Python rows)": lambda: (
                s().groupBy("k").transformWithState(Run(), out, "Update", "None"),
                {},
            ),
            "transformWithStateInPandas": lambda: (
                s().groupBy("k").transformWithStateInPandas(Run(), out, "Update", "None"),
                {},
            ),
            "tumbling window with watermark, update": lambda: (
                tm(s())
                .withWatermark("t", "1 second")
                .groupBy(F.window("t", "5 seconds"), "k")
                .count()
                .select(F.col("k").alias("key"), F.col("count").cast("string").alias("value")),
                {},
            ),
            "session window": lambda: (
                kv(tm(s()).withWatermark("t", "1 second").groupBy(F.session_window("t", "5 seconds"), "k").count()),
                {},
            ),
            "stream-stream join": lambda: (
                kv(
                    tm(s())
                    .withWatermark("t", "1 second")
                    .join(s("t2").withColumnRenamed("v", "v2").withColumnRenamed("ts", "ts2"), "k")
                ),
                {},
            ),
            "two aggregations in a row": lambda: (
                s()
                .groupBy("k")
                .agg(F.count("*").alias("n"))
                .groupBy("n")
                .agg(F.count("*").alias("m"))
                .select(F.col("n").cast("string").alias("key"), F.col("m").cast("string").alias("value")),
                {},
            ),
            "append mode": lambda: (kv(s()), {"mode": "append"}),
            "complete mode": lambda: (agg(source(spark, a)), {"mode": "complete"}),
            "parquet sink": lambda: (kv(s()), {"fmt": "parquet"}),
            "noop sink": lambda: (agg(source(spark, a)), {"fmt": "noop"}),
            "foreachBatch": lambda: (kv(s()), {"fmt": "foreachBatch"}),
            "rate source": lambda: (
                spark.readStream.format("rate").load().select(F.col("value").cast("string").alias("value")),
                {},
            ),
            "trigger 1 second": lambda: (agg(source(spark, a)), {"trigger": "1 second"}),
            "transformWithState (Python rows), allowlist off": lambda: (
                s().groupBy("k").transformWithState(Run(), out, "Update", "None"),
                {"bypass": True},
            ),
            "transformWithState (Python rows), MICRO-BATCH control": lambda: (
                s().groupBy("k").transformWithState(Run(), out, "Update", "None"),
                {"micro": True},
            ),
            "transformWithStateInPandas, MICRO-BATCH control": lambda: (
                s().groupBy("k").transformWithStateInPandas(Run(), out, "Update", "None"),
                {"micro": True},
            ),
            "applyInPandasWithState, MICRO-BATCH control": lambda: (
                s().groupBy("k").applyInPandasWithState(step, out, "c long", "update", GroupStateTimeout.NoTimeout),
                {"micro": True},
            ),
            "applyInPandasWithState, allowlist off": lambda: (
                s().groupBy("k").applyInPandasWithState(step, out, "c long", "update", GroupStateTimeout.NoTimeout),
                {"bypass": True},
            ),
        }
        from confluent_kafka import Producer

        pr = Producer({"bootstrap.servers": a.addr})
        for i in range(2000):
            for t in ("t", "t2"):
                pr.produce(t, f"{i},{int(time.time() * 1e6)}", str(i % 50), i % 2)
        pr.flush(60)
        w = watcher(a.addr)
        for i, (name, make) in enumerate(cases.items()):
            if a.only and a.only not in name:
                continue
            q, said, n0 = None, None, depth(w, "t-out")
            o = {}
            try:
                df, o = make()
                cfg.set("spark.sql.streaming.realTimeMode.allowlistCheck", "false" if o.get("bypass") else "true")
                wr = (
                    df.writeStream.outputMode(o.get("mode", "update"))
                    .option("checkpointLocation", os.path.join(tmp, f"ck{i}"))
                    .trigger(
                        **(
                            {"processingTime": "1 second"}
                            if o.get("micro")
                            else {"realTime": o.get("trigger", "5 seconds")}
                        )
                    )
                )
                f = o.get("fmt", "kafka")
                if f == "foreachBatch":
                    wr = wr.foreachBatch(lambda d, j: None)
                elif f == "kafka":
                    wr = wr.format(f).option("kafka.bootstrap.servers", a.addr).option("topic", "t-out")
                else:
                    wr = wr.format(f).option("path", os.path.join(tmp, f"p{i}"))
                q = wr.start()
                t0 = time.time()
                while (
                    q.isActive and len(q.recentProgress) < (1 if o.get("micro") else 2) and time.time() - t0 < a.limit
                ):
                    time.sleep(0.2)
                if q.exception():
                    said = str(q.exception())
            except Exception as e:
                said = str(e)
            grew = depth(w, "t-out") - n0
            ok = said is None
            text = "" if ok else said.split("JVM stacktrace")[0]
            st = q.recentProgress if q is not None else []
            emit("refuse", PEER, name, ok=ok, batches=len(st), out=grew, text=" ".join(text.split())[:420])
            if q is not None and q.isActive:
                q.stop()
        w.close()
        spark.stop()


def rescale(a):
    """Restart from the same checkpoint with another spark.sql.shuffle.partitions."""
    from kafka_broker import Broker

    with scratch() as tmp, Broker() as b:
        a.addr, a.ckpt, a.n = b.addr, os.path.join(tmp, "ckpt"), 0
        topics(a.addr, a.topic, a.topic + "-out")
        a.out = os.path.join(tmp, "o")
        prod = Child("produce", a, seconds=600, rate=500, out=os.path.join(tmp, "no"))
        got = []
        try:
            for par in (2, 4):
                sp = Child("child", a, par=par, slots=8, out=os.path.join(tmp, f"x{par}"))
                try:
                    ln = sp.wait_line("PROGRESS", 300)
                    got.append((par, json.loads(ln[9:])["state"][0]["numShufflePartitions"]))
                except RuntimeError as e:
                    got.append((par, str(e)[:400]))
                finally:
                    sp.kill()
        finally:
            prod.kill()
        emit("rescale", PEER, "restart with shuffle.partitions 2 -> 4", asked_and_used=got)


def main():
    p = argparse.ArgumentParser(description=__doc__)
    cmds = {f.__name__: f for f in (w1, w6, crash, refuse, rescale, child, produce, consume)}
    p.add_argument("cmd", choices=list(cmds))
    for k, d in (
        ("addr", ""),
        ("topic", "in"),
        ("out", ""),
        ("ckpt", ""),
        ("only", ""),
        ("trigger", "5 seconds"),
        ("mode", "rtm"),
        ("sink", "kafka"),
    ):
        p.add_argument(f"--{k}", default=d)
    for k, d in (("n", 5_000_000), ("keys", 1_000_000), ("rate", 10_000), ("par", 2), ("slots", 4), ("batches", 0)):
        p.add_argument(f"--{k}", type=int, default=d)
    for k, d in (("seconds", 40), ("warm", 20), ("limit", 120), ("hole", 100), ("kill_at", 15)):
        p.add_argument(f"--{k}", type=float, default=d)
    p.add_argument("--store", default="rocksdb", choices=list(STORES))
    p.add_argument("--table", action="store_true")
    p.add_argument("--conf", action="append", default=[])
    a = p.parse_args()
    signal.signal(signal.SIGTERM, lambda *x: sys.exit(143))  # so that `finally` ends the children
    cmds[a.cmd](a)


if __name__ == "__main__":
    main()
