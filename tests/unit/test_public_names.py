"""The names users write are a promise: adding one is a decision, losing one is a mistake."""

import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import cutwater as cw

ENVIRONMENT = [
    "Environment",
    "Checkpointing",
    "memory_storage",
    "Memory",
    "RocksDB",
    "StateBackend",
    "spark_conf",
    "check_session",
]
RESTARTS = ["fixed_delay", "exponential_delay", "failure_rate", "no_restart"]
JOBS = ["Job", "JobResult", "CheckpointInfo"]
SOURCES = [
    "sequence", "from_rows", "text_files", "json_files", "csv_files", "parquet_files", "socket", "spark_table", "Source",
    "SplitReader", "END",
]  # fmt: skip
STREAMS = [
    "Stream",
    "KeyedStream",
    "WindowedStream",
    "ConnectedStreams",
    "tumbling",
    "sliding",
    "session",
    "count",
    "sum",
    "min",
    "max",
    "mean",
    "collect_list",
    "count_distinct",
    "AggregateFunction",
    "first",
    "last",
]
FUNCTIONS = [
    "Process", "KeyedProcess", "WindowProcess", "CoProcess", "BroadcastProcess", "BroadcastState", "ListOperatorState",
    "UnionOperatorState", "SideOutput", "ValueState", "ListState", "MapState", "ReducingState",
    "AggregatingState",
]  # fmt: skip
SINKS = ["parquet_sink", "json_sink", "csv_sink", "print_sink", "discard", "TwoPhaseCommitSink"]
ERRORS = [
    "CutwaterError", "ConfigError", "SchemaError", "PlanError", "StorageError", "StorageInUse", "DamagedCheckpoint",
    "RestoreError", "CommitLost", "DataError", "UserCodeError", "JobFailed",
]  # fmt: skip
PROMISED = [*ENVIRONMENT, *RESTARTS, *JOBS, *SOURCES, *STREAMS, *FUNCTIONS, *SINKS, *ERRORS, "testing"]

METHODS = {
    "Environment": ["enable_checkpointing", "execute", "explain", "read", "start"],
    "Job": ["cancel", "checkpoint_age", "checkpoints", "on_checkpoint", "status", "trigger_checkpoint", "wait"],
    "JobResult": ["rows", "to_polars"],
    "Stream": [
        "broadcast", "collect", "connect", "filter", "flat_map", "key_by", "map", "map_batches", "named", "print", "process",
        "rebalance", "select", "side_output", "uid", "union", "with_columns", "with_parallelism", "with_timestamps",
        "write",
    ],
    "KeyedStream": ["agg", "connect", "join", "process", "reduce", "window"],
    "WindowedStream": ["agg", "join", "process", "reduce"],
    "ConnectedStreams": ["process"],
    "TwoPhaseCommitSink": ["abort", "begin", "close", "commit", "open", "prepare", "recover", "write"],
    "Source": ["discover", "open", "splits"],
    "SplitReader": ["checkpoint_completed", "close", "next_batch", "position"],
}  # fmt: skip


def test_the_public_names_are_exactly_these() -> None:
    assert sorted(cw.__all__) == sorted(PROMISED)


@pytest.mark.parametrize("name", PROMISED)
def test_every_public_name_can_be_imported(name: str) -> None:
    assert getattr(cw, name) is not None


def test_a_name_that_is_not_there_is_an_attribute_error_that_tells_it() -> None:
    with pytest.raises(AttributeError, match="no attribute 'spark_cnof'"):
        cw.spark_cnof  # noqa: B018 (the access is the act)


@pytest.mark.parametrize(("owner", "name"), [(owner, name) for owner, names in METHODS.items() for name in names])
def test_every_promised_method_is_there_and_says_what_it_is_for(owner: str, name: str) -> None:
    assert contract(getattr(getattr(cw, owner), name))


@pytest.mark.parametrize("owner", ["Environment", "Job", "JobResult", "Stream", "KeyedStream"])
def test_what_users_call_is_described_even_where_nothing_was_promised(owner: str) -> None:
    kind = getattr(cw, owner)
    public = [name for name in vars(kind) if not name.startswith("_") and callable(getattr(kind, name))]
    assert [name for name in public if not contract(getattr(kind, name))] == []


@pytest.mark.parametrize("name", [name for name in PROMISED if name not in ("testing", "END")])
def test_every_public_name_says_what_it_is_for(name: str) -> None:
    assert contract(getattr(cw, name))


def contract(named: object) -> str:
    """The docstring that it has of its own: dataclasses and protocols would have one made up for them."""
    told = getattr(named, "__doc__", None) or ""
    return "" if told.startswith(f"{getattr(named, '__name__', '')}(") else told.strip()


def test_a_result_and_a_checkpoint_have_the_promised_numbers() -> None:
    result = {"status", "attempts", "checkpoints", "records_in", "records_out", "seconds"}
    assert result <= set(inspect.signature(cw.JobResult).parameters)
    numbers = {
        "id", "kind", "status", "trigger_time", "duration", "state_bytes", "in_flight_bytes", "alignment", "start_delay",
        "sync_duration", "async_duration", "failure_reason", "path", "subtasks",
    }  # fmt: skip
    assert numbers <= set(inspect.signature(cw.CheckpointInfo).parameters)


@pytest.mark.parametrize(
    ("call", "names"),
    [
        (
            cw.Environment,
            ["spark", "parallelism", "max_parallelism", "checkpointing", "state_backend", "restart"],
        ),
        (
            cw.Checkpointing,
            [
                "interval", "storage", "mode", "min_pause", "timeout", "max_concurrent", "tolerable_failures", "unaligned",
                "aligned_timeout", "retain", "on_cancel", "on_damaged",
            ],
        ),
        (cw.Environment.read, ["source", "uid", "parallelism"]),
        (cw.Environment.execute, ["name", "restore", "allow_non_restored_state"]),
        (cw.Environment.start, ["name", "restore", "allow_non_restored_state"]),
        (cw.sequence, ["n", "rate", "start"]),
        (cw.from_rows, ["rows", "schema"]),
        (cw.text_files, ["path", "watch", "on_error"]),
        (cw.json_files, ["path", "schema", "watch", "on_error"]),
        (cw.csv_files, ["path", "schema", "watch", "on_error"]),
        (cw.parquet_files, ["path", "watch", "on_error"]),
        (cw.socket, ["host", "port", "allow_data_loss"]),
        (cw.parquet_sink, ["path", "partition_by"]),
        (cw.memory_storage, ["max_state"]),
        (cw.fixed_delay, ["attempts", "delay"]),
        (cw.spark_conf, ["master", "slots"]),
    ],
)  # fmt: skip
def test_arguments_have_the_promised_names(call: object, names: list[str]) -> None:
    assert set(names) <= set(inspect.signature(call).parameters)  # type: ignore[arg-type]


def test_importing_the_package_does_not_load_spark() -> None:
    program = "import sys, cutwater; sys.exit('pyspark' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_every_error_is_one_of_ours() -> None:
    assert all(issubclass(getattr(cw, name), cw.CutwaterError) for name in ERRORS)


def test_messages_and_docstrings_name_only_what_there_is() -> None:
    source = Path(cw.__file__).parent
    named = {
        f"{path.relative_to(source)}: cw.{name}"
        for path in source.rglob("*.py")
        for name in re.findall(r"\bcw\.([A-Za-z_]\w*)", path.read_text())
        if not hasattr(cw, name)
    }
    assert sorted(named) == []
