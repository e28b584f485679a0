"""Print, discard, collect."""

import pickle
from typing import Any

import pyarrow as pa
import pytest

from cutwater.connectors.collect import Collect
from cutwater.connectors.discard import discard
from cutwater.connectors.print import print_sink
from cutwater.connectors.sink import Delivery, SinkContext
from cutwater.errors import ConfigError

BATCH = pa.RecordBatch.from_pydict({"word": ["a", None], "n": [1, 2]})


def test_rows_are_printed_where_the_context_says() -> None:
    lines: list[str] = []
    sink = pickle.loads(pickle.dumps(print_sink("counts> ")))  # noqa: S301 (our own bytes)
    sink.open(SinkContext("job", "p", 0, 1, 1, "inc", BATCH.schema, print_lines=lines.extend))
    sink.write(BATCH)
    assert lines == ["counts> word=a, n=1", "counts> word=None, n=2"]
    assert sink.delivery is Delivery.AT_LEAST_ONCE


def test_rows_are_printed_here_when_the_context_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    sink = print_sink()
    sink.open(SinkContext("job", "p", 0, 1, 1, "inc", BATCH.schema))
    sink.write(BATCH)
    assert capsys.readouterr().out == "word=a, n=1\nword=None, n=2\n"


def test_what_nobody_sees_and_what_the_runtime_moves_is_exactly_once() -> None:
    discard().write(BATCH)
    assert discard().delivery is Delivery.EXACTLY_ONCE
    assert Collect("counts").delivery is Delivery.EXACTLY_ONCE
    assert Collect("counts").name == "counts"
    with pytest.raises(ConfigError, match="name=''"):
        Collect("")


@pytest.mark.parametrize("prefix", [None, 5, b"> "])
def test_a_prefix_that_is_no_text_is_refused(prefix: Any) -> None:
    with pytest.raises(ConfigError, match="prefix="):
        print_sink(prefix)
