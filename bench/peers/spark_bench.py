"""Spark Structured Streaming baselines. Run inside the Spark venv, e.g.

    python spark_bench.py w1 --store rocksdb

A micro-batch engine has no 'checkpointing off': every batch commits its offsets and its state.
`w1-batch` runs the same aggregation as one static query, as the no-checkpoint ceiling.
"""

import argparse
import os
import subprocess
import sys
import time

from measure import Meter, emit, med, note, pct, quiet, scratch

KEYS = 1_000_000
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
STORES = {
    "hdfs": "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider",
    "rocksdb": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
}


def session(a, tmp):
    from pyspark.sql import SparkSession

    b = (
        SparkSession.builder.master(f"local[{a.par}]")
        .appName("peers")
        .config("spark.driver.memory", "8g")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.local.dir", tmp)
        .config("spark.sql.shuffle.partitions", str(a.par))
        .config("spark.sql.warehouse.dir", os.path.join(tmp, "wh"))
        .config("spark.sql.adaptive.enabled", "false")
        .config("spark.sql.streaming.metricsEnabled", "false")
        .config("spark.sql.streaming.numRecentProgressUpdates", "10000")
        .config("spark.sql.streaming.stateStore.providerClass", STORES[a.store])
    )
    if a.changelog:
        b = b.config("spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled", "true")
    for kv in a.conf:
        b = b.config(*kv.split("=", 1))
    s = b.getOrCreate()
    s.sparkContext.setLogLevel("ERROR")
    return s


def rate(spark, a):
    return (
        spark.readStream.format("rate-micro-batch")
        .option("rowsPerBatch", a.batch)
        .option("numPartitions", a.par)
        .load()
    )


def kv(df, keys):
    from pyspark.sql import functions as F

    return df.select(
        (F.pmod(F.col("value") * F.lit(2654435761), F.lit(4294967296)) % keys).alias("k"),
        (F.col("value") % 1024).alias("v"),
    )


def drive(q, a, workload, variant, scale=1):
    """Waits for a.skip + a.batches batches of `q`, then reports from its progress events.
    Only the batches after the first a.skip count; the median batch gives the rate."""
    want = a.skip + a.batches
    t_end = time.time() + a.limit
    m = None
    while time.time() < t_end:
        if q.exception():
            raise q.exception()
        done = [p for p in q.recentProgress if p["numInputRows"] > 0]
        if m is None and len(done) >= a.skip:
            m = Meter().__enter__()
            n0 = len(done)
        if len(done) >= want:
            break
        time.sleep(0.05)
    if m is None:  # too slow even for the warm-up: report the last batch alone
        m = Meter().__enter__()
        n0 = len(done) - 1
    m.__exit__()
    done = [p for p in q.recentProgress if p["numInputRows"] > 0]
    n_cpu = sum(p["numInputRows"] for p in done[n0:])
    q.stop()
    use = done[a.skip : want] or done[-1:]
    ms = [p["durationMs"]["triggerExecution"] for p in use]
    rows = [p["numInputRows"] for p in use]
    per = [r / (t / 1000.0) for r, t in zip(rows, ms, strict=False)]
    st = use[-1]["stateOperators"]
    emit(
        workload,
        "pyspark-4.3.0",
        variant,
        batches=len(use),
        rows_per_batch=a.batch,
        rec_per_s=int(med(per) * scale),
        best=int(max(per) * scale),
        worst=int(min(per) * scale),
        overall=int(sum(rows) / sum(ms) * 1000 * scale),
        batch_ms=med(ms),
        cpu_us_per_rec=m.cpu / max(1, n_cpu * scale) * 1e6,
        others_cores=m.others,
        commit_ms=med([p["stateOperators"][0]["commitTimeMs"] for p in use]) if st else None,
        state_rows=st[0]["numRowsTotal"] if st else None,
        wal_ms=med([p["durationMs"].get("walCommit", 0) for p in use]),
        commit_offsets_ms=med([p["durationMs"].get("commitOffsets", 0) for p in use]),
    )


def start(df, tmp, mode="update", trigger="0 seconds"):
    return (
        df.writeStream.format("noop")
        .outputMode(mode)
        .option("checkpointLocation", os.path.join(tmp, "ckpt"))
        .trigger(processingTime=trigger)
        .start()
    )


def w1(a):
    from pyspark.sql import functions as F

    with scratch() as tmp:
        spark = session(a, tmp)
        df = kv(rate(spark, a), KEYS).groupBy("k").agg(F.count("*"), F.sum("v"))
        quiet()
        drive(
            start(df, tmp),
            a,
            "W1",
            f"groupBy {a.store}{' changelog' if a.changelog else ''} batch={a.batch} " + " ".join(a.conf),
        )
        spark.stop()


def w1_batch(a):
    from pyspark.sql import functions as F

    with scratch() as tmp:
        spark = session(a, tmp)
        secs, cpu, oth = [], [], []
        for i in range(4):
            if i:
                quiet()
            with Meter() as m:
                df = spark.range(0, a.n, 1, a.par).withColumnRenamed("id", "value")
                (kv(df, KEYS).groupBy("k").agg(F.count("*"), F.sum("v")).write.format("noop").mode("overwrite").save())
            if i:
                secs.append(m.wall)
                cpu.append(m.cpu)
                oth.append(m.others)
        emit(
            "W1",
            "pyspark-4.3.0",
            "static batch query (no streaming, no state)",
            n=a.n,
            rec_per_s=int(a.n / med(secs)),
            best=int(a.n / min(secs)),
            worst=int(a.n / max(secs)),
            cpu_us_per_rec=med(cpu) / a.n * 1e6,
            others_cores=med(oth),
        )
        spark.stop()


def w2(a):
    """Lines of 10 zipf-ish words, made by Spark expressions from the rate source, split and
    exploded; 5 s event-time windows, 1 ms of event time per line, watermark 1 s, append mode."""
    from pyspark.sql import functions as F

    with scratch() as tmp:
        spark = session(a, tmp)
        src = rate(spark, a)
        w = [
            F.pow(F.lit(10000.0), F.pmod(F.xxhash64(F.col("value"), F.lit(i)), F.lit(1000000)) / 1000000.0)
            .cast("int")
            .cast("string")
            for i in range(10)
        ]
        lines = src.select(F.timestamp_millis(F.col("value")).alias("ts"), F.concat_ws(" ", *w).alias("line"))
        if a.source_only:
            drive(start(lines, tmp, "append"), a, "W2", "lines only")
        else:
            df = (
                lines.withWatermark("ts", "1 second")
                .select("ts", F.explode(F.split("line", " ")).alias("word"))
                .groupBy(F.window("ts", "5 seconds"), "word")
                .count()
            )
            quiet()
            drive(start(df, tmp, "append"), a, "W2", f"lines/s {a.store} batch={a.batch}")
        spark.stop()


def w3(a):
    from pyspark.sql import functions as F

    with scratch() as tmp:
        a.store = "rocksdb" if a.fn.startswith("tws") else a.store
        spark = session(a, tmp)
        udf = F.udf(lambda v: v + 1, "long", useArrow=a.arrow_udf)
        df = kv(rate(spark, a), 1000).select("k", udf("v").alias("v"))
        out = "k long, c long, s long"
        if a.fn == "map":
            res = df
        elif a.fn == "apply":
            import pandas as pd
            from pyspark.sql.streaming.state import GroupStateTimeout

            def step(key, pdfs, state):
                c, s = state.get if state.exists else (0, 0)
                for p in pdfs:
                    cs, ss = [], []
                    for v in p["v"].tolist():
                        c += 1
                        s += v
                        cs.append(c)
                        ss.append(s)
                    yield pd.DataFrame({"k": [key[0]] * len(cs), "c": cs, "s": ss})
                state.update((c, s))

            res = df.groupBy("k").applyInPandasWithState(
                step, out, "c long, s long", "append", GroupStateTimeout.NoTimeout
            )
        else:
            import pandas as pd
            from pyspark.sql import Row
            from pyspark.sql.streaming import StatefulProcessor

            pandas_rows = a.fn == "tws-pandas"

            class Run(StatefulProcessor):
                def init(self, handle):
                    self.st = handle.getValueState("cs", "c long, s long")

                def handleInputRows(self, key, rows, timerValues):
                    cur = self.st.get() if self.st.exists() else (0, 0)
                    c, s = cur[0], cur[1]
                    if pandas_rows:
                        for p in rows:
                            cs, ss = [], []
                            for v in p["v"].tolist():
                                c += 1
                                s += v
                                cs.append(c)
                                ss.append(s)
                            yield pd.DataFrame({"k": [key[0]] * len(cs), "c": cs, "s": ss})
                    else:
                        for r in rows:
                            c += 1
                            s += r["v"]
                            yield Row(k=key[0], c=c, s=s)
                    self.st.update((c, s))

                def close(self):
                    pass

            g = df.groupBy("k")
            call = g.transformWithStateInPandas if pandas_rows else g.transformWithState
            res = call(statefulProcessor=Run(), outputStructType=out, outputMode="Update", timeMode="None")
        quiet()
        mode = "append" if a.fn in ("map", "apply") else "update"
        drive(
            start(res, tmp, mode),
            a,
            "W3",
            f"python {a.fn} {a.store} batch={a.batch}{' arrow-udf' if a.arrow_udf else ''}",
        )
        spark.stop()


# ---------------------------------------------------------------- W5 recovery
def w5_child(a):
    """Runs a paced W1 query from $PEERS_CKPT and prints the wall time of every batch end."""
    from pyspark.sql import functions as F

    with scratch() as tmp:
        spark = session(a, tmp)
        df = kv(
            spark.readStream.format("rate-micro-batch")
            .option("rowsPerBatch", a.batch)
            .option("numPartitions", a.par)
            .load(),
            KEYS,
        )
        df = df.groupBy("k").agg(F.count("*"), F.sum("v"))

        def each(b, i):
            b.write.format("noop").mode("overwrite").save()
            print(f"BATCH {i} {time.time()}", flush=True)

        print(f"START {time.time()}", flush=True)
        (
            df.writeStream.foreachBatch(each)
            .outputMode("update")
            .option("checkpointLocation", os.environ["PEERS_CKPT"])
            .trigger(processingTime="0 seconds")
            .start()
            .awaitTermination()
        )


def w5(a):
    """kill -9 of the whole driver (JVM and Python) in mid-run, then a fresh process from the
    same checkpoint; and, within one living driver, query.stop() + start()."""
    import signal

    gaps, starts = [], []
    for _ in range(a.reps):
        quiet()
        with scratch() as tmp:
            env = dict(os.environ, PEERS_CKPT=os.path.join(tmp, "ckpt"))
            cmd = [
                sys.executable,
                os.path.abspath(__file__),
                "w5-child",
                "--store",
                a.store,
                "--batch",
                str(a.batch),
            ] + (["--changelog"] if a.changelog else [])

            def launch():
                return subprocess.Popen(
                    cmd, env=env, stdout=subprocess.PIPE, text=True, start_new_session=True, stderr=subprocess.DEVNULL
                )

            p = launch()
            n = 0
            for line in p.stdout:
                if line.startswith("BATCH"):
                    n += 1
                    if n == 10:
                        break
            last = float(line.split()[2])
            t_kill = time.time()
            os.killpg(p.pid, signal.SIGKILL)  # the process group started above
            p.wait()
            p2 = launch()
            t_start = None
            for line in p2.stdout:
                if line.startswith("START"):
                    t_start = float(line.split()[1])
                if line.startswith("BATCH"):
                    first = float(line.split()[2])
                    break
            os.killpg(p2.pid, signal.SIGKILL)
            p2.wait()
            gaps.append(first - t_kill)
            starts.append(first - t_start)
            note(
                f"  kill->first batch {first - t_kill:.2f}s, of which from query start "
                f"{first - t_start:.2f}s; last batch was {t_kill - last:.3f}s before the kill"
            )
    emit(
        "W5",
        "pyspark-4.3.0",
        f"driver kill -9 {a.store} batch={a.batch} keys=1M",
        reps=a.reps,
        kill_to_first_batch_s=med(gaps),
        query_start_to_first_batch_s=med(starts),
        worst_s=max(gaps),
    )


def w5_stop(a):
    """Restart of the query alone, in a warm driver: stop(), start(), first batch."""
    from pyspark.sql import functions as F

    with scratch() as tmp:
        spark = session(a, tmp)
        df = kv(rate(spark, a), KEYS).groupBy("k").agg(F.count("*"), F.sum("v"))
        gaps = []
        ends = []

        def each(b, i):
            b.write.format("noop").mode("overwrite").save()
            ends.append(time.time())

        def go():
            return (
                df.writeStream.foreachBatch(each)
                .outputMode("update")
                .option("checkpointLocation", os.path.join(tmp, "ckpt"))
                .trigger(processingTime="0 seconds")
                .start()
            )

        q = go()
        for _ in range(a.reps):
            n = len(ends)
            while len(ends) < n + 8:
                time.sleep(0.005)
            q.stop()
            n = len(ends)
            t0 = time.time()
            q = go()
            while len(ends) == n:
                time.sleep(0.002)
            gaps.append(ends[n] - t0)
        q.stop()
        emit(
            "W5",
            "pyspark-4.3.0",
            f"query restart, warm driver {a.store} batch={a.batch}",
            reps=a.reps,
            restart_to_first_batch_s=med(gaps),
            worst_s=max(gaps),
        )
        spark.stop()


# ---------------------------------------------------------------- W6 latency
def w6(a):
    from pyspark.sql import functions as F
    from socket_feed import Feed

    with scratch() as tmp:
        feed = Feed(a.rate, a.seconds, KEYS).start()
        spark = session(a, tmp)
        raw = spark.readStream.format("socket").option("host", "127.0.0.1").option("port", feed.port).load()
        p = F.split("value", ",")
        df = (
            raw.select(p[0].cast("long").alias("k"), p[1].cast("long").alias("ts"))
            .groupBy("k")
            .agg(F.count("*").alias("c"), F.max("ts").alias("mts"))
        )
        lat = []

        def each(b, i):
            ts = b.select("mts").toPandas()["mts"].to_numpy()
            now = time.time()
            lat.extend((t / 1e6, now - t / 1e6) for t in ts)

        q = (
            df.writeStream.foreachBatch(each)
            .outputMode("update")
            .option("checkpointLocation", os.path.join(tmp, "ckpt"))
            .trigger(processingTime=a.trigger)
            .start()
        )
        t0 = time.time()
        while time.time() - t0 < a.seconds:
            if q.exception():
                raise q.exception()
            time.sleep(0.2)
        prog = [x for x in q.recentProgress if x["numInputRows"] > 0]
        q.stop()
        feed.stop()
        first = min(x[0] for x in lat)
        ms = [x[1] * 1e3 for x in lat if x[0] - first >= a.skip]
        emit(
            "W6",
            "pyspark-4.3.0",
            f"micro-batch {a.store} trigger={a.trigger}",
            rate=a.rate,
            samples=len(ms),
            p50_ms=pct(ms, 50),
            p90_ms=pct(ms, 90),
            p99_ms=pct(ms, 99),
            p999_ms=pct(ms, 99.9),
            max_ms=max(ms),
            batches=len(prog),
            batch_ms=med([x["durationMs"]["triggerExecution"] for x in prog]),
        )
        spark.stop()


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("cmd", choices=["w1", "w1-batch", "w2", "w3", "w5", "w5-child", "w5-stop", "w6"])
    p.add_argument("--n", type=int, default=20_000_000)
    p.add_argument("--par", type=int, default=2)
    p.add_argument("--store", default="rocksdb", choices=list(STORES))
    p.add_argument("--changelog", action="store_true")
    p.add_argument("--batch", type=int, default=1_000_000)
    p.add_argument("--batches", type=int, default=20)
    p.add_argument("--skip", type=int, default=5, help="warm-up batches (w6: seconds)")
    p.add_argument("--limit", type=float, default=90)
    p.add_argument("--fn", default="apply", choices=["map", "apply", "tws-pandas", "tws-row"])
    p.add_argument("--arrow-udf", action="store_true")
    p.add_argument("--source-only", action="store_true")
    p.add_argument("--rate", type=int, default=10_000)
    p.add_argument("--seconds", type=float, default=30)
    p.add_argument("--trigger", default="0 seconds")
    p.add_argument("--reps", type=int, default=3)
    p.add_argument("--conf", action="append", default=[])
    a = p.parse_args()
    {"w1": w1, "w1-batch": w1_batch, "w2": w2, "w3": w3, "w5": w5, "w5-child": w5_child, "w5-stop": w5_stop, "w6": w6}[
        a.cmd
    ](a)


if __name__ == "__main__":
    main()
