"""Schemas as users write them, read into Arrow: Spark DDL, Spark ``StructType`` or ``pyarrow.Schema``. Needs no pyspark."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, Final, Protocol, runtime_checkable

import pyarrow as pa

from cutwater.encodings import decoded_schema, decoded_type
from cutwater.errors import SchemaError

TIMESTAMP: Final[pa.DataType] = pa.timestamp("us", "UTC")
"""Spark's ``timestamp``: an instant."""


@runtime_checkable
class SparkType(Protocol):
    """What we need of a ``pyspark.sql.types.DataType``, so that nobody has to import it."""

    def jsonValue(self) -> Any: ...


SchemaLike = str | pa.Schema | SparkType
"""What users may pass as a schema."""
TypeLike = str | pa.DataType | SparkType
"""What users may pass as a single type."""

_SIMPLE: Final[Mapping[str, pa.DataType]] = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "byte": pa.int8(),
    "smallint": pa.int16(),
    "short": pa.int16(),
    "int": pa.int32(),
    "integer": pa.int32(),
    "bigint": pa.int64(),
    "long": pa.int64(),
    "float": pa.float32(),
    "real": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": TIMESTAMP,
    "timestamp_ltz": TIMESTAMP,
    "timestamp_ntz": pa.timestamp("us"),
}
_ALLOWED: Final = (
    "boolean, tinyint (byte), smallint (short), int (integer), bigint (long), float, double, decimal(p,s), string, binary, "
    "date, timestamp, timestamp_ntz, array<t>, map<k,v>, struct<name:t,...>"
)
_TOKEN: Final = re.compile(
    r"\s*(?:`((?:[^`]|``)+)`|('(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")|([^\s`'\"<>(),:]+)|([<>(),:]))"
)


def arrow_schema(schema: SchemaLike, where: str = "schema") -> pa.Schema:
    """Read a schema; ``where`` names the argument in errors. Raises SchemaError naming the place and what is allowed.

    Dictionaries and views are read as the types of their values.
    """
    match schema:
        case pa.Schema():
            read = decoded_schema(schema)
        case str():
            read = _Ddl(schema, where).schema()
        case SparkType():
            read = _struct_of(schema.jsonValue(), where)
        case _:
            raise SchemaError(
                f"{where}: {schema!r} is not a schema; allowed are Spark DDL like 'word string, n long', "
                "a Spark StructType or a pyarrow.Schema"
            )
    if not read.names:
        raise SchemaError(f"{where}: a schema needs at least one column, like 'word string, n long'")
    _refuse_duplicates(read.names, where)
    return read


def arrow_type(data_type: TypeLike, where: str = "type") -> pa.DataType:
    """Read one type, like ``"array<long>"``; SchemaError as for ``arrow_schema``."""
    match data_type:
        case pa.DataType():
            _refuse_unkept(read := decoded_type(data_type), where)
            return read
        case str():
            return _Ddl(data_type, where).single_type()
        case SparkType():
            return _type_of_json(data_type.jsonValue(), where)
        case _:
            raise SchemaError(f"{where}: {data_type!r} is not a type; allowed are {_ALLOWED}")


def require_columns(schema: pa.Schema, names: Iterable[str], where: str) -> None:
    """SchemaError unless every name is a column: names the first that is missing, and those that exist."""
    for name in names:
        if name not in schema.names:
            raise SchemaError(missing_column(name, schema.names, where))


def missing_column(name: object, available: Sequence[str], where: str) -> str:
    """The message for a column that is not there, with the nearest spelling."""
    return f"{where}: no column {name!r}{did_you_mean(name, available)}; available: {', '.join(available) or 'none'}"


def did_you_mean(name: object, available: Sequence[str]) -> str:
    """``" (did you mean 'word'?)"`` or nothing."""
    by_lower = {known.lower(): known for known in available}
    near = get_close_matches(str(name).lower(), list(by_lower), n=1, cutoff=0.6)
    return f" (did you mean {by_lower[near[0]]!r}?)" if near else ""


def _refuse_unkept(data_type: pa.DataType, where: str) -> None:
    """Arrow has types whose values cannot be told apart from others, or not be given back as they were."""
    kinds = pa.types
    checks = (kinds.is_null, kinds.is_union, kinds.is_run_end_encoded, kinds.is_interval)
    if isinstance(data_type, pa.BaseExtensionType) or any(check(data_type) for check in checks):
        raise SchemaError(f"{where}: values of the type {data_type} cannot be kept; allowed are {_ALLOWED}")
    if isinstance(data_type, pa.StructType):
        _refuse_duplicates([field.name for field in data_type], where)
    for at in range(data_type.num_fields):
        _refuse_unkept(data_type.field(at).type, where)


def _refuse_duplicates(names: Sequence[str], where: str) -> None:
    for at, name in enumerate(names):
        if name in names[:at]:
            raise SchemaError(f"{where}: column {name!r} is given twice; names must differ")


class _Ddl:
    """A recursive-descent reader of Spark's DDL; errors name the character they happened at."""

    def __init__(self, text: str, where: str) -> None:
        self._text = text
        self._where = where
        self._at = 0
        self._tokens: list[tuple[int, str, str]] = []
        self._read_tokens()

    def schema(self) -> pa.Schema:
        if self._peek()[1:] == ("word", "struct") and self._tokens[1:2] and self._tokens[1][2] == "<":
            whole = self._type()
            self._end()
            return pa.schema([whole.field(i) for i in range(whole.num_fields)])
        fields = self._fields(lambda: self._peek()[1] == "end")
        self._end()
        return pa.schema(fields)

    def single_type(self) -> pa.DataType:
        read = self._type()
        self._end()
        return read

    def _read_tokens(self) -> None:
        at, text = 0, self._text
        while text[at:].strip():
            found = _TOKEN.match(text, at)
            start = at + len(text[at:]) - len(text[at:].lstrip())
            if found is None:
                raise self._error(start, "this cannot be read (an unclosed quote?)")
            quoted, string, word, sign = found.groups()
            if quoted is not None:
                self._tokens.append((start, "name", quoted.replace("``", "`")))
            elif string is not None:
                self._tokens.append((start, "string", string))
            elif word is not None:
                self._tokens.append((start, "word", word))
            else:
                self._tokens.append((start, "sign", sign))
            at = found.end()
        self._tokens.append((len(text), "end", ""))

    def _fields(self, ended: Callable[[], bool]) -> "list[pa.Field[Any]]":
        fields: list[pa.Field[Any]] = []
        while not ended():
            start, kind, name = self._next()
            if kind not in ("word", "name"):
                raise self._error(start, f"expected a column name, found {name or 'the end'!r}")
            if any(field.name == name for field in fields):
                raise self._error(start, f"column {name!r} is given twice; names must differ")
            if self._peek()[2] == ":":
                self._next()
            fields.append(self._field(name))
            if self._peek()[1:] != ("sign", ","):
                break
            comma = self._next()[0]
            if ended():
                raise self._error(comma, "a column must follow the comma")
        return fields

    def _field(self, name: str) -> "pa.Field[Any]":
        data_type = self._type(f"the type of column {name!r}")
        nullable = True
        if self._peek_word() == "not":
            start = self._next()[0]
            if self._peek_word() != "null":
                raise self._error(start, "expected NOT NULL")
            self._next()
            nullable = False
        if self._peek_word() == "comment":
            self._next()
            start, kind, _ = self._next()
            if kind != "string":
                raise self._error(start, "expected a quoted text behind COMMENT")
        return pa.field(name, data_type, nullable=nullable)

    def _type(self, wanted: str = "a type") -> pa.DataType:
        start, kind, word = self._next()
        if kind != "word":
            raise self._error(start, f"expected {wanted}, found {word or 'the end'!r}; allowed are {_ALLOWED}")
        match word.lower():
            case "array":
                self._sign("<")
                element = self._type()
                self._sign(">")
                return pa.list_(element)
            case "map":
                self._sign("<")
                key = self._type()
                self._sign(",")
                item = self._type()
                self._sign(">")
                return pa.map_(key, item)
            case "struct":
                self._sign("<")
                fields = self._fields(lambda: self._peek()[2] == ">")
                self._sign(">")
                return pa.struct(fields)
            case "decimal" | "dec" | "numeric":
                return self._decimal(start)
            case "char" | "varchar" | "character" if self._peek()[2] == "(":
                self._numbers()
                return pa.string()
            case name if name in _SIMPLE:
                return _SIMPLE[name]
        hint = did_you_mean(word, [*_SIMPLE, "decimal", "array", "map", "struct"])
        raise self._error(start, f"{word!r} is not a type{hint}; allowed are {_ALLOWED}")

    def _decimal(self, start: int) -> pa.DataType:
        precision, scale = 10, 0
        if self._peek()[2] == "(":
            numbers = self._numbers()
            if len(numbers) > 2:
                raise self._error(start, "decimal takes (precision, scale)")
            precision, scale = (numbers[0], numbers[1] if len(numbers) == 2 else 0)
        if not (1 <= precision <= 38 and 0 <= scale <= precision):
            raise self._error(
                start, f"decimal({precision},{scale}): allowed is 1 <= precision <= 38, scale <= precision"
            )
        return pa.decimal128(precision, scale)

    def _numbers(self) -> list[int]:
        self._sign("(")
        numbers: list[int] = []
        while True:
            start, _, word = self._next()
            if not word.isdecimal():
                raise self._error(start, f"expected a number, found {word or 'the end'!r}")
            numbers.append(int(word))
            if self._peek()[2] != ",":
                break
            self._next()
        self._sign(")")
        return numbers

    def _peek(self) -> tuple[int, str, str]:
        return self._tokens[self._at]

    def _peek_word(self) -> str:
        _, kind, word = self._peek()
        return word.lower() if kind == "word" else ""

    def _next(self) -> tuple[int, str, str]:
        token = self._tokens[self._at]
        self._at = min(self._at + 1, len(self._tokens) - 1)
        return token

    def _sign(self, sign: str) -> None:
        start, kind, word = self._next()
        if (kind, word) != ("sign", sign):
            raise self._error(start, f"expected {sign!r}, found {word or 'the end'!r}")

    def _end(self) -> None:
        start, kind, word = self._peek()
        if kind != "end":
            raise self._error(start, f"expected ',' or the end, found {word!r}")

    def _error(self, at: int, problem: str) -> SchemaError:
        return SchemaError(f"{self._where}: at character {at + 1} of {self._text!r}: {problem}")


def _struct_of(json: Any, where: str) -> pa.Schema:
    """``StructType.jsonValue()`` as a schema."""
    if not (isinstance(json, Mapping) and json.get("type") == "struct"):
        raise SchemaError(f"{where}: expected a Spark StructType, found the type {json!r}")
    return pa.schema(_fields_of_json(json, where))


def _fields_of_json(json: Mapping[str, Any], where: str) -> "list[pa.Field[Any]]":
    fields = [
        pa.field(
            f["name"], _type_of_json(f["type"], f"{where}, column {f['name']!r}"), nullable=f.get("nullable", True)
        )
        for f in json["fields"]
    ]
    _refuse_duplicates([field.name for field in fields], where)
    return fields


def _type_of_json(json: Any, where: str) -> pa.DataType:
    match json:
        case str():
            return _Ddl(json, where).single_type()
        case {"type": "struct"}:
            return pa.struct(_fields_of_json(json, where))
        case {"type": "array", "elementType": element}:
            return pa.list_(_type_of_json(element, where))
        case {"type": "map", "keyType": key, "valueType": item}:
            return pa.map_(_type_of_json(key, where), _type_of_json(item, where))
        case {"type": "udt", "sqlType": stored}:
            return _type_of_json(stored, where)
        case _:
            raise SchemaError(f"{where}: the type {json!r} cannot be used; allowed are {_ALLOWED}")
