"""Rows as user functions see them, and the way between them and Arrow batches."""

from collections import namedtuple
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from itertools import islice, repeat
from operator import itemgetter, length_hint
from typing import Any

import pyarrow as pa

from cutwater.dict_keys import as_found_again, as_key
from cutwater.errors import DataError
from cutwater.exact_arrays import MISFITS, exact_array
from cutwater.schema import did_you_mean, missing_column

_RESERVED = frozenset({"_fields", "_index", "_asdict", "_replace"})


class Row(tuple[Any, ...]):
    """A record: ``r.word``, ``r["word"]``, ``r[0]``; equal to the plain tuple. ``row_type`` makes its classes."""

    __slots__ = ()
    _fields: tuple[str, ...] = ()
    _index: dict[str, int] = {}  # noqa: RUF012 (each generated class has its own, never changed)

    def __getitem__(self, key: Any) -> Any:
        if key.__class__ is str:
            try:
                return tuple.__getitem__(self, self._index[key])
            except KeyError:
                raise KeyError(missing_column(key, self._fields, "row")) from None
        return tuple.__getitem__(self, key)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise AttributeError(missing_column(name, self._fields, "row"))

    def _asdict(self) -> dict[str, Any]:
        return dict(zip(self._fields, self, strict=True))

    def _replace(self, **changes: Any) -> "Row":
        """A row of the same columns, some values changed."""
        unknown = [name for name in changes if name not in self._index]
        if unknown:
            raise ValueError(missing_column(unknown[0], self._fields, "row"))
        return tuple.__new__(type(self), [changes.get(name, value) for name, value in self._asdict().items()])

    def __repr__(self) -> str:
        return f"Row({', '.join(f'{name}={value!r}' for name, value in zip(self._fields, self, strict=True))})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (self._fields, tuple(self))


def _rebuild(names: tuple[str, ...], values: tuple[Any, ...]) -> Row:
    return tuple.__new__(row_type(names), values)


@lru_cache(maxsize=4096)
def row_type(names: tuple[str, ...]) -> type[Row]:
    """The class of rows with these columns. Names that are no attributes are reached by ``r["the name"]`` only."""
    # namedtuple's getters read the slot in C; a property over our own __getitem__ would cost a Python call per access.
    plain = namedtuple("_plain", [f"c{i}" for i in range(len(names))])  # type: ignore[misc]
    getters = {
        name: plain.__dict__[f"c{i}"]
        for i, name in enumerate(names)
        if name.isidentifier() and not name.startswith("__") and name not in _RESERVED
    }
    space = {"__slots__": (), "_fields": names, "_index": {name: i for i, name in enumerate(names)}, **getters}
    return type("Row", (Row,), space)


class RowsInTurn:
    """A batch's ``rows``, made one at a time: structs come as rows, maps as dicts. A row that is used and dropped at once costs
    less than one of a list, whose memory has gone cold when its turn comes."""

    __slots__ = ("_columns", "_first", "_kind", "rows")

    def __init__(self, batch: pa.RecordBatch) -> None:
        self._kind = row_type(tuple(batch.schema.names))
        self._columns = [values_of(column) for column in batch.columns]
        self._first = iter(self._columns[0] if self._columns else ())
        values: Iterable[Any] = zip(self._first, *self._columns[1:], strict=True)
        if not self._columns:
            values = repeat((), batch.num_rows)
        self.rows: Iterator[Row] = map(self._kind, values)

    def last(self) -> Row:
        """The one that was taken last."""
        at = len(self._columns[0]) - length_hint(self._first) - 1 if self._columns else 0
        return self._kind(column[at] for column in self._columns)


def rows_of(batch: pa.RecordBatch) -> list[Row]:
    """All rows of the batch at once."""
    return list(RowsInTurn(batch).rows)


def values_of(column: "pa.Array[Any]") -> list[Any]:
    """One column's values as user functions see them."""
    convert = _from_python(column.type)
    if convert is None:
        return column.to_pylist()
    if isinstance(column, pa.StructArray) and column.type.num_fields:
        return _values_of_structs(column)
    if isinstance(column.type, pa.ListType | pa.LargeListType):
        return _values_of_lists(column)
    return [convert(value) for value in column.to_pylist()]


def _values_of_structs(column: "pa.StructArray") -> list[Any]:
    """Field by field: to make a dict of each struct first takes several times as long."""
    fields = [values_of(column.field(i)) for i in range(column.type.num_fields)]
    rows = map(row_type(tuple(field.name for field in column.type)), zip(*fields, strict=True))
    if column.null_count == 0:
        return list(rows)
    return [row if there else None for row, there in zip(rows, column.is_valid().to_pylist(), strict=True)]


def _values_of_lists(column: Any) -> list[Any]:
    elements = iter(values_of(column.flatten()))
    sizes = column.value_lengths().to_pylist()
    return [None if size is None else list(islice(elements, size)) for size in sizes]


def key_values_of(column: "pa.Array[Any]") -> list[Any]:
    """One column's values as keys of a dict: like ``values_of``, and those that are the same key are one (``as_key``)."""
    values = values_of(column)
    convert = as_key(column.type)
    return values if convert is None else [convert(value) for value in values]


@lru_cache(maxsize=4096)
def _from_python(data_type: pa.DataType) -> Callable[[Any], Any] | None:
    """How a value of ``to_pylist`` becomes what users see; None when it already is."""
    match data_type:
        case pa.StructType():
            fields = [data_type.field(i) for i in range(data_type.num_fields)]
            return _struct_reader(
                row_type(tuple(field.name for field in fields)), [_from_python(f.type) for f in fields]
            )
        case pa.MapType():
            return _map_reader(
                _from_python(data_type.key_type), as_found_again(data_type.key_type), _from_python(data_type.item_type)
            )
        case pa.ListType() | pa.LargeListType() | pa.FixedSizeListType():
            element = _from_python(data_type.value_type)
            if element is None:
                return None
            return lambda value: None if value is None else [element(v) for v in value]
        case _:
            return None


def _struct_reader(kind: type[Row], readers: Sequence[Callable[[Any], Any] | None]) -> Callable[[Any], Any]:
    def read(value: dict[str, Any] | None) -> Row | None:
        if value is None:
            return None
        return tuple.__new__(kind, [v if r is None else r(v) for v, r in zip(value.values(), readers, strict=True)])

    return read


def _map_reader(*readers: Callable[[Any], Any] | None) -> Callable[[Any], Any]:
    key, same, item = readers

    def read(pairs: list[tuple[Any, Any]] | None) -> dict[Any, Any] | None:
        if pairs is None:
            return None
        if key is not None:
            pairs = [(key(k), v) for k, v in pairs]
        if same is not None:
            pairs = [(same(k), v) for k, v in pairs]
        found = dict(pairs) if item is None else {k: item(v) for k, v in pairs}
        if len(found) != len(pairs):
            raise DataError(f"a map has the same key twice, which a dict cannot show: {shortened(pairs)}")
        return found

    return read


def batch_of(results: Iterable[Any], schema: pa.Schema, where: str) -> pa.RecordBatch:
    """Results of a user function as a batch: rows, tuples or dicts; for one column also bare values.

    DataError, naming ``where``, the column and the value, when a result does not fit. The culprit is looked for
    on failure only; the good case runs column by column.
    """
    found = results if isinstance(results, list) else list(results)
    columns = _columns_of(found, schema, where)
    return pa.RecordBatch.from_arrays(
        [_array_of(column, field, found, where) for column, field in zip(columns, schema, strict=True)], schema=schema
    )


def row_of(result: Any, schema: pa.Schema, where: str) -> Row:
    """One result of a user function as a row of ``schema``; DataError if its shape is wrong. Types are not looked at."""
    kind = row_type(tuple(schema.names))
    if type(result) is kind:
        return result
    return tuple.__new__(kind, _values_in_order(result, schema, where))


def _columns_of(results: list[Any], schema: pa.Schema, where: str) -> Sequence[Sequence[Any]]:
    names = schema.names
    kinds = set(map(type, results))
    if not kinds:
        return [()] * len(names)
    if all(issubclass(kind, tuple) for kind in kinds):
        with suppress(ValueError):  # they differ in length
            columns = list(zip(*results, strict=True))
            if len(columns) == len(names):
                return columns
    if kinds == {dict} and len(names) > 1 and set(map(len, results)) == {len(names)}:
        with suppress(KeyError):
            return list(zip(*map(itemgetter(*names), results), strict=True))
    return list(zip(*[_values_in_order(result, schema, where) for result in results], strict=True))


def _values_in_order(result: Any, schema: pa.Schema, where: str) -> tuple[Any, ...]:
    """One result as a tuple of the schema's columns."""
    names = schema.names
    match result:
        case tuple() if len(result) == len(names):
            return result
        case dict() if result.keys() == set(names):
            return tuple(result[name] for name in names)
        case _ if len(names) == 1 and _may_be_value(result, schema.field(0).type):
            return (result,)
        case tuple():
            problem = f"has {len(result)} values, the schema has {len(names)} columns ({', '.join(names)})"
        case dict():
            missing = [name for name in names if name not in result]
            extra = [str(name) for name in result if name not in names]
            lacks = f"lacks column {missing[0]!r}" if missing else ""
            has = f"has {extra[0]!r}{did_you_mean(extra[0], names)}, which is no column" if extra else ""
            problem = f"{' and '.join(filter(None, (lacks, has)))}; columns: {', '.join(names)}"
        case _:
            forgotten = " (is a return missing?)" if result is None else ""
            problem = f"is a {type(result).__name__}{forgotten}; needed is a tuple, dict or row of {', '.join(names)}"
    raise DataError(f"{where}: the result {shortened(result)} {problem}")


def _may_be_value(result: Any, data_type: pa.DataType) -> bool:
    """Whether a tuple or dict of the wrong shape for a row may be the single column's own value; all else may."""
    match result:
        case tuple():
            return pa.types.is_nested(data_type)
        case dict():
            return isinstance(data_type, pa.StructType | pa.MapType)
        case _:
            return True


def _array_of(values: Sequence[Any], field: "pa.Field[Any]", results: list[Any], where: str) -> "pa.Array[Any]":
    try:
        array = exact_array(values, field.type)
    except MISFITS as error:
        raise _misfit(values, field, results, where, error) from None
    if array.null_count and not field.nullable:
        at = array.is_null().to_pylist().index(True)
        raise DataError(
            f"{where}: column {field.name!r} is NOT NULL, but the result {shortened(results[at])} has no value for it"
        )
    return array


def _misfit(
    values: Sequence[Any], field: "pa.Field[Any]", results: list[Any], where: str, error: Exception
) -> DataError:
    for value, result in zip(values, results, strict=True):
        try:
            exact_array([value], field.type)
        except Exception as why:  # whatever it was, this is the value that does not fit
            return DataError(
                f"{where}: column {field.name!r} is {field.type}, which cannot hold {shortened(value)} "
                f"({type(value).__name__}) of the result {shortened(result)}: {why}"
            )
    return DataError(f"{where}: column {field.name!r} is {field.type}, which cannot hold its values: {error}")


def shortened(value: object, limit: int = 200) -> str:
    """``repr`` for messages: in one line, and cut in the middle."""
    try:
        text = " ".join(repr(value).splitlines())
    except Exception as error:  # a broken __repr__ must not hide the error being reported
        text = f"<{type(value).__name__} whose repr raised {type(error).__name__}>"
    return text if len(text) <= limit else f"{text[: limit - 40]}...{text[-36:]}"
