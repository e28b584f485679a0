"""W5 for Apache Flink: kill -9 of a TaskManager in a local standalone cluster.

The cluster is started from the scripts in the PyFlink wheel, with its configuration, logs and
pids in a scratch directory. The job (1M keys of keyed aggregate state, fixed input rate) prints
about one update in a thousand, so the other TaskManager's .out file starts to grow when records
flow again: that growth, polled every 5 ms, is the end of the outage.
"""

import argparse
import contextlib
import glob
import json
import os
import shutil
import signal
import subprocess
import time
import urllib.request

import pyflink
from flink_bench import free_port
from measure import emit, med, note, quiet, scratch
from pyflink.datastream import StreamExecutionEnvironment
from pyflink.java_gateway import get_gateway
from pyflink.table import StreamTableEnvironment

HOME = os.path.dirname(pyflink.__file__)


def get(port, path):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as r:
        return json.load(r)


def once(a, tmp):
    conf = os.path.join(tmp, "conf")
    shutil.copytree(os.path.join(HOME, "conf"), conf)
    port, rpc = free_port(), free_port()
    with open(os.path.join(conf, "config.yaml")) as fh:
        java = next(x for x in fh if x.strip().startswith("all:")).strip()[len("all:") :].strip()
    settings = {
        "env.java.opts.all": java,
        "jobmanager.rpc.address": "localhost",
        "jobmanager.rpc.port": str(rpc),
        "jobmanager.memory.process.size": "1g",
        "taskmanager.memory.process.size": "2g",
        "taskmanager.numberOfTaskSlots": "2",
        "parallelism.default": "2",
        "rest.address": "localhost",
        "rest.port": str(port),
        "restart-strategy.type": "fixed-delay",
        "restart-strategy.fixed-delay.attempts": "1000",
        "restart-strategy.fixed-delay.delay": "0 s",
        "state.backend.type": a.backend,
        "execution.checkpointing.incremental": "true" if a.backend == "rocksdb" else "false",
        "execution.checkpointing.dir": "file://" + os.path.join(tmp, "ckpt"),
        "execution.checkpointing.interval": "1 s",
    }
    if a.heartbeat:
        settings["heartbeat.interval"] = str(a.heartbeat)
        settings["heartbeat.timeout"] = str(a.heartbeat * 6)
    with open(os.path.join(conf, "config.yaml"), "w") as fh:
        fh.writelines(f"{k}: {json.dumps(v) if k != 'env.java.opts.all' else v}\n" for k, v in settings.items())
    logs, pids = os.path.join(tmp, "log"), os.path.join(tmp, "pid")
    os.makedirs(logs)
    os.makedirs(pids)
    env = dict(os.environ, FLINK_CONF_DIR=conf, FLINK_LOG_DIR=logs, FLINK_PID_DIR=pids, FLINK_HOME=HOME)

    def sh(script, *args):
        subprocess.run(
            ["bash", os.path.join(HOME, "bin", script), *args],
            env=env,
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def tm_pids():
        out = []
        for f in glob.glob(os.path.join(pids, "*taskexecutor*.pid")):
            out += [int(x) for x in open(f).read().split()]
        return out

    def wait_tms(n):
        end = time.time() + 40
        while time.time() < end:
            try:
                if len(get(port, "/taskmanagers")["taskmanagers"]) >= n:
                    return
            except OSError:
                pass
            time.sleep(0.1)
        raise RuntimeError("TaskManagers did not register")

    started = []
    try:
        sh("jobmanager.sh", "start")
        sh("taskmanager.sh", "start")
        started = tm_pids()
        first = started[0]
        wait_tms(1)
        gw = get_gateway()
        j_env = gw.jvm.org.apache.flink.streaming.api.environment.StreamExecutionEnvironment
        t = StreamTableEnvironment.create(
            StreamExecutionEnvironment(
                j_env.createRemoteEnvironment("localhost", port, 2, gw.new_array(gw.jvm.java.lang.String, 0))
            )
        )
        for k, v in settings.items():  # job-level settings come from the client, not the cluster
            if k.startswith(("execution.", "state.", "restart-strategy")):
                t.get_config().set(k, v)
        t.execute_sql(f"""CREATE TABLE src (k BIGINT, v BIGINT) WITH ('connector'='datagen',
            'rows-per-second'='{a.rate}', 'fields.k.min'='0','fields.k.max'='{a.keys - 1}',
            'fields.v.min'='0','fields.v.max'='1000')""")
        t.execute_sql("CREATE TABLE dst (k BIGINT, c BIGINT, s BIGINT) WITH ('connector'='print')")
        r = t.execute_sql("""INSERT INTO dst SELECT k, c, s FROM (
            SELECT k, COUNT(*) AS c, SUM(v) AS s FROM src GROUP BY k) WHERE MOD(s, 1000) = 0""")
        job = str(r.get_job_client().get_job_id())
        if a.standby:
            sh("taskmanager.sh", "start")
            wait_tms(2)
            started = tm_pids()
        time.sleep(a.run)
        ck = get(port, f"/jobs/{job}/checkpoints")
        if not ck["latest"]["completed"]:
            raise RuntimeError(f"no checkpoint before the kill: {ck['counts']}")
        size = ck["latest"]["completed"]["state_size"]

        def out_size():
            # outputs of every TaskManager but the first (log files are numbered from 0)
            return sum(os.path.getsize(f) for f in glob.glob(os.path.join(logs, "*taskexecutor-[1-9]*.out")))

        base = out_size()
        t0 = time.time()
        os.kill(first, signal.SIGKILL)  # a process this script started
        if not a.standby:
            sh("taskmanager.sh", "start")
            started = tm_pids()
        while time.time() - t0 < 70 and out_size() == base:
            time.sleep(0.005)
        first_out = time.time() - t0
        note(f"  state {size / 1e6:.1f} MB: first output {first_out:.2f}s after the kill")
        r.get_job_client().cancel().result()
        return first_out, size
    finally:
        for p in tm_pids():
            with contextlib.suppress(OSError):
                os.kill(p, signal.SIGKILL)
        for f in glob.glob(os.path.join(pids, "*.pid")):
            for x in open(f).read().split():
                with contextlib.suppress(OSError):
                    os.kill(int(x), signal.SIGKILL)
        time.sleep(0.5)


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--backend", default="hashmap", choices=["hashmap", "rocksdb"])
    p.add_argument("--rate", type=int, default=200_000)
    p.add_argument("--keys", type=int, default=1_000_000)
    p.add_argument("--heartbeat", type=int, default=0, help="ms; 0 = Flink's default (10 s)")
    p.add_argument("--run", type=float, default=12, help="seconds before the kill")
    p.add_argument("--no-standby", dest="standby", action="store_false")
    p.add_argument("--reps", type=int, default=3)
    a = p.parse_args()
    rows = []
    for _ in range(a.reps):
        quiet()
        with scratch() as tmp:
            rows.append(once(a, tmp))
    emit(
        "W5",
        "flink-2.3.0",
        f"TaskManager kill -9 {a.backend} "
        f"heartbeat={a.heartbeat or 'default'} {'standby TM' if a.standby else 'new TM process'}",
        reps=a.reps,
        kill_to_first_output_s=med([r[0] for r in rows]),
        worst_s=max(r[0] for r in rows),
        state_mb=med([r[1] for r in rows]) / 1e6,
    )


if __name__ == "__main__":
    main()
