"""The Python daemon that Spark forks its workers from: everything heavy is imported once, before the fork.

Named by ``spark.python.daemon.module``. A restarted attempt so begins in a second instead of four. Nothing here may start a
thread: a thread does not survive a fork, but the locks it held do.
"""

import gc
import importlib
import sys
import traceback

import pyspark.daemon

from cutwater.spark.freed_memory import keep_freed_memory
from cutwater.spark.zip_finders import forget_zip_finders
from cutwater.state.kernels import warm_up

for _heavy in (
    "numpy",
    "pandas",
    "polars",
    "pyarrow.compute",
    "pyarrow.ipc",
    "zmq",
    "pyspark.worker",
    "pyspark.sql.types",
    "pyspark.sql.pandas.serializers",
    "cutwater.spark.task",
    "cutwater.state.rocksdb_store",
):
    importlib.import_module(_heavy)

SWITCH_SECONDS = 0.001


def _print_unless_peer_left(*args: object, **kwargs: object) -> None:
    """When an attempt ends, the JVM closes its end first: that is no news."""
    if not isinstance(sys.exc_info()[1], BrokenPipeError | ConnectionResetError):
        _print_exc(*args, **kwargs)  # type: ignore[arg-type]


_print_exc = traceback.print_exc

if __name__ == "__main__":
    pyspark.daemon.traceback.print_exc = _print_unless_peer_left  # type: ignore[attr-defined]
    keep_freed_memory()
    warm_up()
    forget_zip_finders()
    gc.collect()
    gc.freeze()
    # The loop shares the interpreter with threads that read, talk and write: when it needs it back, it waits this long at most.
    sys.setswitchinterval(SWITCH_SECONDS)
    # Row functions make many short-lived objects and no cycles: look for garbage less often.
    gc.set_threshold(50_000, 20, 100)
    pyspark.daemon.manager()
