"""Cutwater: consistent checkpoints of running PySpark streams. ``import cutwater as cw``."""

from cutwater import testing
from cutwater.aggregates import (
    AggregateFunction,
    collect_list,
    count,
    count_distinct,
    first,
    last,
    max,  # noqa: A004
    mean,
    min,  # noqa: A004
    sum,  # noqa: A004
)
from cutwater.checkpoint.statistics import CheckpointInfo
from cutwater.config import Checkpointing, memory_storage
from cutwater.connected_stream import ConnectedStreams
from cutwater.connectors.csv_lines import csv_files
from cutwater.connectors.discard import discard
from cutwater.connectors.file_sink import csv_sink, json_sink, parquet_sink
from cutwater.connectors.json_lines import json_files
from cutwater.connectors.parquet import parquet_files
from cutwater.connectors.print import print_sink
from cutwater.connectors.rows import from_rows
from cutwater.connectors.sequence import sequence
from cutwater.connectors.sink import TwoPhaseCommitSink
from cutwater.connectors.socket import socket
from cutwater.connectors.source import END, Source, SplitReader
from cutwater.connectors.spark_table import spark_table
from cutwater.connectors.text import text_files
from cutwater.environment import Environment
from cutwater.errors import (
    CommitLost,
    ConfigError,
    CutwaterError,
    DamagedCheckpoint,
    DataError,
    JobFailed,
    PlanError,
    RestoreError,
    SchemaError,
    StorageError,
    StorageInUse,
    UserCodeError,
)
from cutwater.functions import BroadcastProcess, CoProcess, KeyedProcess, Process, SideOutput, WindowProcess
from cutwater.job.handle import Job
from cutwater.job.result import JobResult
from cutwater.keyed_stream import KeyedStream
from cutwater.restart import exponential_delay, failure_rate, fixed_delay, no_restart
from cutwater.state.backend import StateBackend
from cutwater.state.descriptors import AggregatingState, ListState, MapState, ReducingState, ValueState
from cutwater.state.memory import Memory
from cutwater.state.operator_states import BroadcastState, ListOperatorState, UnionOperatorState
from cutwater.state.rocksdb import RocksDB
from cutwater.stream import Stream
from cutwater.windowed_stream import WindowedStream
from cutwater.windows import session, sliding, tumbling

__all__ = [
    "END", "AggregateFunction",
    "AggregatingState", "BroadcastProcess", "BroadcastState", "CheckpointInfo", "Checkpointing", "CoProcess",
    "CommitLost", "ConfigError", "ConnectedStreams", "CutwaterError", "DamagedCheckpoint", "DataError", "Environment",
    "Job", "JobFailed", "JobResult", "KeyedProcess", "KeyedStream", "ListOperatorState", "ListState", "MapState", "Memory",
    "PlanError", "Process", "ReducingState", "RestoreError", "RocksDB", "SchemaError", "SideOutput", "Source", "SplitReader",
    "StateBackend", "StorageError", "StorageInUse", "Stream", "TwoPhaseCommitSink", "UnionOperatorState", "UserCodeError",
    "ValueState", "WindowProcess", "WindowedStream", "check_session",
    "collect_list", "count", "count_distinct", "csv_files", "csv_sink", "discard",
    "exponential_delay", "failure_rate", "first", "fixed_delay", "from_rows", "json_files", "json_sink", "last", "max",
    "mean", "memory_storage", "min", "no_restart", "parquet_files", "parquet_sink", "print_sink", "sequence", "session",
    "sliding", "socket", "spark_conf", "spark_table", "sum", "testing", "text_files", "tumbling",
]  # fmt: skip


def __getattr__(name: str) -> object:
    """``spark_conf`` and ``check_session`` import Spark, so they are loaded when they are first asked for."""
    if name in ("spark_conf", "check_session"):
        from cutwater.spark import settings

        return getattr(settings, name)
    raise AttributeError(f"module 'cutwater' has no attribute {name!r}")
