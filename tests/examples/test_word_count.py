"""The word counts, from files and from a socket: the pipelines as they stand, on scripted input."""

from collections import Counter
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

import cutwater as cw

Example = Callable[[str], ModuleType]
LINES = ["The river, the boat", "and THE rope;", "", "a boat on a river"]
TRUTH = Counter(["the", "river", "the", "boat", "and", "the", "rope", "a", "boat", "on", "a", "river"])


def _last(rows: list[Any]) -> dict[str, int]:
    return {row.word: row.n for row in rows}


@pytest.mark.parametrize("parallelism", [1, 2])
def test_words_of_files_are_counted(example: Example, parallelism: int) -> None:
    got = cw.testing.run(example("word_count").pipeline, {"lines": LINES}, parallelism=parallelism)
    assert _last(got["out"]) == TRUTH


def test_words_of_files_are_counted_once_over_a_failure(example: Example) -> None:
    script = cw.testing.script(LINES[:2], cw.testing.CHECKPOINT, LINES[2:3], cw.testing.FAIL, LINES[3:])
    assert _last(cw.testing.run(example("word_count").pipeline, {"lines": script})["out"]) == TRUTH


def test_words_of_a_socket_are_counted(example: Example) -> None:
    got = cw.testing.run(example("word_count_socket").pipeline, {"lines": LINES})
    (rows,) = got.values()
    assert _last(rows) == TRUTH


def test_a_socket_under_exactly_once_is_refused_unless_the_loss_is_accepted() -> None:
    env = cw.Environment(parallelism=1, checkpointing=cw.Checkpointing("1s", storage="memory"))
    env.read(cw.socket("localhost", 9999)).print()
    with pytest.raises(cw.ConfigError, match="allow_data_loss=True"):
        env.define("socket", 1)
