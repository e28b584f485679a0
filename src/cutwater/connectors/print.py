"""Rows as lines on the terminal."""

import sys
from collections.abc import Sequence

import pyarrow as pa

from cutwater.arguments import takes_no_others
from cutwater.connectors.sink import PlainSink, SinkContext
from cutwater.errors import ConfigError


@takes_no_others
def print_sink(prefix: str = "") -> "PrintSink":
    """One line per row, like ``word=the, n=3``."""
    if not isinstance(prefix, str):
        raise ConfigError(f"print_sink: prefix={prefix!r}; a string is needed")
    return PrintSink(prefix)


class PrintSink(PlainSink):
    """Lines go where the context says, which is the driver's terminal in a job; repeated after a failure."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix

    def describe(self) -> str:
        return "print_sink"

    def open(self, ctx: SinkContext) -> None:
        self._print = ctx.print_lines or _to_standard_output

    def write(self, batch: pa.RecordBatch) -> None:
        names = batch.schema.names
        columns = [column.to_pylist() for column in batch.columns]
        self._print(
            [
                self._prefix + ", ".join(f"{name}={value}" for name, value in zip(names, row, strict=True))
                for row in zip(*columns, strict=True)
            ]
        )


def _to_standard_output(lines: Sequence[str]) -> None:
    sys.stdout.write("".join(line + "\n" for line in lines))
    sys.stdout.flush()
