"""Schemas as users write them."""

import pyarrow as pa
import pytest

import cutwater as cw
from cutwater.errors import SchemaError
from cutwater.schema import arrow_schema, arrow_type, require_columns


def test_ddl_with_every_type_is_read() -> None:
    schema = arrow_schema(
        "word string, n long, a array<int>, m map<string,long>, s struct<x:int,y:string>, d decimal(10,2), t timestamp, "
        "dt date, b boolean, f float, g double, bin binary, i1 tinyint, i1b byte, i2 smallint, i2b short, i4 int, "
        "i4b integer, i8 bigint, ntz timestamp_ntz"
    )
    columns: list[tuple[str, pa.DataType]] = [
        ("word", pa.string()),
        ("n", pa.int64()),
        ("a", pa.list_(pa.int32())),
        ("m", pa.map_(pa.string(), pa.int64())),
        ("s", pa.struct([("x", pa.int32()), ("y", pa.string())])),
        ("d", pa.decimal128(10, 2)),
        ("t", pa.timestamp("us", "UTC")),
        ("dt", pa.date32()),
        ("b", pa.bool_()),
        ("f", pa.float32()),
        ("g", pa.float64()),
        ("bin", pa.binary()),
        ("i1", pa.int8()),
        ("i1b", pa.int8()),
        ("i2", pa.int16()),
        ("i2b", pa.int16()),
        ("i4", pa.int32()),
        ("i4b", pa.int32()),
        ("i8", pa.int64()),
        ("ntz", pa.timestamp("us")),
    ]
    assert schema == pa.schema(columns)


def test_types_nest_and_case_does_not_matter() -> None:
    assert arrow_type("ARRAY<Map<string, struct<a: int, `b c`: array<array<LONG>>>>>") == pa.list_(
        pa.map_(pa.string(), pa.struct([("a", pa.int32()), ("b c", pa.list_(pa.list_(pa.int64())))]))
    )


def test_backquoted_names_not_null_and_comments_are_understood() -> None:
    schema = arrow_schema("`my ``own`` word` string NOT NULL COMMENT 'what, was: said', n: long")
    assert schema.names == ["my `own` word", "n"]
    assert [field.nullable for field in schema] == [False, True]


def test_a_whole_struct_is_a_schema_and_a_column_may_be_called_struct() -> None:
    assert arrow_schema("struct<a:int,b:string>") == arrow_schema("a int, b string")
    assert arrow_schema("struct string").names == ["struct"]


def test_decimal_without_arguments_is_sparks_default() -> None:
    assert arrow_type("decimal") == pa.decimal128(10, 0)
    assert arrow_type("decimal(5)") == pa.decimal128(5, 0)


@pytest.mark.parametrize(
    ("ddl", "at", "says"),
    [
        ("word strin", 6, "did you mean 'string'?"),
        ("word string, n", 15, "the type of column 'n'"),
        ("word string n long", 13, "expected ',' or the end, found 'n'"),
        ("word string,", 12, "a column must follow the comma"),
        ("a array<int", 12, "expected '>', found 'the end'"),
        ("a string, b int, a long", 18, "column 'a' is given twice"),
        ("d decimal(40,2)", 3, "1 <= precision <= 38"),
        ("d decimal(x)", 11, "expected a number, found 'x'"),
        ("a string NOT there", 10, "expected NOT NULL"),
        ("`a string", 1, "unclosed quote"),
        (", a string", 1, "expected a column name"),
    ],
)
def test_an_error_in_ddl_names_its_place(ddl: str, at: int, says: str) -> None:
    with pytest.raises(SchemaError) as raised:
        arrow_schema(ddl, "map's schema")
    assert f"map's schema: at character {at} of" in str(raised.value)
    assert says in str(raised.value)


@pytest.mark.parametrize("nothing", ["", "   ", pa.schema([])])
def test_an_empty_schema_is_refused(nothing: str | pa.Schema) -> None:
    with pytest.raises(SchemaError, match="at least one column"):
        arrow_schema(nothing)


def test_something_else_is_refused_with_what_is_allowed() -> None:
    with pytest.raises(SchemaError, match="Spark DDL like"):
        arrow_schema(17)  # type: ignore[arg-type]
    with pytest.raises(SchemaError, match="17 is not a type"):
        arrow_type(17)  # type: ignore[arg-type]


def test_an_arrow_schema_is_taken_as_it_is_unless_names_repeat() -> None:
    schema = pa.schema([("a", pa.large_string())], metadata={"k": "v"})
    assert arrow_schema(schema) is schema
    with pytest.raises(SchemaError, match="'a' is given twice"):
        arrow_schema(pa.schema([("a", pa.int8()), ("a", pa.int8())]))


class FakeStruct:
    """Has what ``pyspark.sql.types.StructType`` has."""

    def __init__(self, json: object) -> None:
        self._json = json

    def jsonValue(self) -> object:
        return self._json


def test_a_spark_struct_type_is_read_by_its_json() -> None:
    struct = FakeStruct(
        {
            "type": "struct",
            "fields": [
                {"name": "w", "type": "string", "nullable": False, "metadata": {}},
                {"name": "d", "type": "decimal(10,2)", "nullable": True, "metadata": {}},
                {
                    "name": "a",
                    "type": {"type": "array", "elementType": "integer", "containsNull": True},
                    "nullable": True,
                },
                {
                    "name": "m",
                    "type": {"type": "map", "keyType": "string", "valueType": "long", "valueContainsNull": True},
                    "nullable": True,
                },
            ],
        }
    )
    assert arrow_schema(struct) == arrow_schema("w string not null, d decimal(10,2), a array<int>, m map<string,long>")
    assert arrow_type(FakeStruct("long")) == pa.int64()
    with pytest.raises(SchemaError, match="expected a Spark StructType"):
        arrow_schema(FakeStruct("long"))


def test_the_types_pyspark_really_makes_are_read() -> None:
    types = pytest.importorskip("pyspark.sql.types")
    struct = types.StructType(
        [
            types.StructField("t", types.TimestampType()),
            types.StructField("n", types.TimestampNTZType()),
            types.StructField("s", types.StructType([types.StructField("x", types.ByteType())])),
            types.StructField("b", types.BinaryType(), nullable=False),
        ]
    )
    assert arrow_schema(struct) == arrow_schema("t timestamp, n timestamp_ntz, s struct<x:byte>, b binary not null")
    with pytest.raises(SchemaError, match="column 'v'"):
        arrow_schema(types.StructType([types.StructField("v", types.VariantType())]))


def test_a_missing_column_is_named_with_those_that_exist() -> None:
    schema = arrow_schema("word string, n long")
    require_columns(schema, ["n", "word"], "key_by")
    with pytest.raises(SchemaError) as raised:
        require_columns(schema, ["Words"], "key_by")
    assert str(raised.value) == "key_by: no column 'Words' (did you mean 'word'?); available: word, n"


@pytest.mark.parametrize(
    "data_type",
    [
        pa.null(),
        pa.list_(pa.null()),
        pa.map_(pa.string(), pa.uuid()),
        pa.struct([("a", pa.list_(pa.json_()))]),
        pa.month_day_nano_interval(),
        pa.run_end_encoded(pa.int32(), pa.int64()),
        pa.sparse_union([pa.field("a", pa.int64())]),
    ],
    ids=str,
)
def test_a_type_whose_values_cannot_be_kept_is_refused_where_it_is_declared(data_type: pa.DataType) -> None:
    with pytest.raises(
        SchemaError, match=r"ListState's type: values of the type .* cannot be kept; allowed are boolean"
    ):
        cw.ListState(data_type)


def test_fields_of_one_name_are_refused_in_a_struct_of_arrow_too() -> None:
    with pytest.raises(SchemaError, match="ValueState's type: column 'a' is given twice"):
        cw.ValueState(pa.struct([("a", pa.int64()), ("a", pa.string())]))
