"""How functions of the user are called with the rows of a window."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from cutwater.errors import ConfigError
from cutwater.functions import ProcessContext, WindowProcess
from cutwater.operators.process import several
from cutwater.operators.user_code import user_error
from cutwater.rows import Row, row_of


def reduced(fn: Callable[[Row, Row], Any], rows: Sequence[Row], schema: pa.Schema, where: str) -> Row:
    result = rows[0]
    for row in rows[1:]:
        try:
            answer = fn(result, row)
        except Exception as error:
            raise user_error(error, where, row) from error
        result = row_of(answer, schema, where)
    return result


def processed(fn: WindowProcess, rows: list[Row], ctx: ProcessContext, schema: pa.Schema, where: str) -> Iterator[Any]:
    try:
        found = fn.process(rows, ctx)
        if found is not None:
            yield from several(found, schema)
    except Exception as error:
        raise user_error(error, f"{where}, key {ctx.key!r}") from error


def with_own_sides(late: Mapping[str, pa.Schema], own: Mapping[str, pa.Schema]) -> Mapping[str, pa.Schema]:
    """The side outputs of a window and of its function, which may not have the name that late records come out under."""
    for name in late:
        if name in own:
            raise ConfigError(
                f"window: the side output {name!r} is that of late records; give the function's another name."
            )
    return {**late, **own}
