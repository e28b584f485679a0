"""How aggregates become accumulator columns: what each record adds, how partial rows merge, what comes out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cutwater.aggregates import AggregateFunction, AggregateKind, AggregateSpec, Aggregation, needs_values
from cutwater.errors import ConfigError, DataError, SchemaError
from cutwater.flow.arrow import Array
from cutwater.flow.columns import check_key_type
from cutwater.schema import require_columns
from cutwater.state.encoded_keys import plain_schema
from cutwater.state.frozen import refuse_reserved
from cutwater.state.tables import Column, Merge, Update

_MERGE_OF_PARTIALS = {Merge.COUNT: Merge.ADD}

_LAYOUTS: Mapping[AggregateKind, Sequence[tuple[str, Merge]]] = {
    AggregateKind.COUNT: [("", Merge.COUNT)],
    AggregateKind.SUM: [("", Merge.ADD)],
    AggregateKind.MIN: [("", Merge.MIN)],
    AggregateKind.MAX: [("", Merge.MAX)],
    AggregateKind.MEAN: [(".sum", Merge.ADD), (".count", Merge.COUNT)],
    AggregateKind.FIRST: [("", Merge.FIRST)],
    AggregateKind.LAST: [("", Merge.LAST)],
}
"""The accumulators of each kind: what is added to the result's name, and how values join. Part of the stored format."""


@dataclass(frozen=True, slots=True)
class Accumulator:
    """One accumulator column and how a record reaches it. ``source`` None: the record itself counts."""

    column: Column
    merge: Merge
    source: str | None


@dataclass(frozen=True, slots=True)
class Result:
    """One output column, from one accumulator or (mean) from a sum and a count."""

    name: str
    type: pa.DataType
    accumulators: tuple[int, ...]


@dataclass(frozen=True)
class AccumulatorPlan:
    """Everything that ``k.agg(...)`` means for rows of ``schema``. Pure data; pickled with its operator.

    The schemas are asked for with every batch, so each is made once.
    """

    schema: pa.Schema
    keys: tuple[str, ...]
    accumulators: tuple[Accumulator, ...]
    results: tuple[Result, ...]

    @cached_property
    def key_schema(self) -> pa.Schema:
        return pa.schema([self.schema.field(name) for name in self.keys])

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        return tuple(accumulator.column for accumulator in self.accumulators)

    @cached_property
    def partial_schema(self) -> pa.Schema:
        return pa.schema([*plain_schema(self.key_schema), *(column.field for column in self.columns)])

    @cached_property
    def output_schema(self) -> pa.Schema:
        return pa.schema([*self.key_schema, *(pa.field(result.name, result.type) for result in self.results)])

    def updates(self, batch: pa.RecordBatch) -> list[Update]:
        """What the records of a batch add."""
        return [
            Update(i, accumulator.merge, self._input(batch, accumulator))
            for i, accumulator in enumerate(self.accumulators)
        ]

    def merges(self, partial: pa.RecordBatch) -> list[Update]:
        """What the rows of a partial batch add."""
        return [
            Update(i, merge_of_partials(accumulator.merge), partial.column(len(self.keys) + i))
            for i, accumulator in enumerate(self.accumulators)
        ]

    def partial_rows(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Each record as a partial row of its own, for when combining does not pay."""
        wanted = self.partial_schema
        columns = [_plain_array(batch.column(name), wanted.field(name).type) for name in self.keys]
        for accumulator in self.accumulators:
            values = self._input(batch, accumulator)
            if accumulator.merge is Merge.COUNT:
                ones = np.ones(batch.num_rows, np.int64)
                values = pa.array(ones) if values is None else values.is_valid().cast(pa.int64())
            assert values is not None
            columns.append(values)
        return pa.RecordBatch.from_arrays(columns, schema=wanted)

    def output(self, keys: Sequence[Array], accumulated: Sequence[Array]) -> pa.RecordBatch:
        """The rows that the user sees."""
        return pa.RecordBatch.from_arrays([*keys, *self.results_of(accumulated)], schema=self.output_schema)

    def results_of(self, accumulated: Sequence[Array]) -> list[Array]:
        return [_result(result, [accumulated[i] for i in result.accumulators]) for result in self.results]

    def _input(self, batch: pa.RecordBatch, accumulator: Accumulator) -> Array | None:
        if accumulator.source is None:
            return None
        values = batch.column(accumulator.source)
        wanted = accumulator.column.type
        if accumulator.merge is Merge.COUNT or values.type == wanted:
            return values
        # Only a mean adds integers up as doubles, and is rounded anyway; all else must not change.
        rounded = pa.types.is_integer(values.type) and pa.types.is_floating(wanted)
        try:
            return values.cast(wanted, safe=not rounded)
        except pa.ArrowInvalid as error:
            raise DataError(f"column {accumulator.source!r}: a value does not fit {wanted}: {error}") from error


def merge_of_partials(merge: Merge) -> Merge:
    """How accumulators join that records were merged into by ``merge``."""
    return _MERGE_OF_PARTIALS.get(merge, merge)


def _plain_array(array: Array, wanted: pa.DataType) -> Array:
    return array if array.type == wanted else array.cast(wanted)


def _result(result: Result, parts: Sequence[Array]) -> Array:
    if len(parts) == 1:
        return parts[0]
    total, count = parts
    return pc.divide(total, count.cast(pa.float64()))


def plan_aggregates(schema: pa.Schema, keys: Sequence[str], results: Mapping[str, Aggregation]) -> AccumulatorPlan:
    """Check names and types (SchemaError names what is wrong and what is there) and lay out the accumulators.

    Of those ``results`` that are kept as values and not in columns only the names are checked: they have no place in the plan.
    """
    if not keys:
        raise ConfigError("key_by() needs at least one column.")
    if not results:
        raise ConfigError("agg() needs at least one result, like agg(n=cw.count()).")
    require_columns(schema, keys, "key_by()")
    for key in keys:
        check_key_type(key, schema.field(key).type)
    accumulators: list[Accumulator] = []
    outputs: list[Result] = []
    for name, spec in results.items():
        if not isinstance(spec, Aggregation):
            raise _not_an_aggregate(name, spec)
        if name in keys:
            raise SchemaError(f"agg({name}={spec}): {name!r} is a key column already; choose another name.")
        refuse_reserved(name, f"agg({name}={spec})")
        if not isinstance(spec, AggregateSpec) or needs_values(spec):
            continue
        if spec.column is not None:
            require_columns(schema, [spec.column], f"agg({name}={spec})")
        added, output_type = _accumulators(name, spec, schema)
        stored = {*keys, *(accumulator.column.name for accumulator in accumulators)}
        for accumulator in added:
            if accumulator.column.name in stored:
                raise SchemaError(
                    f"agg({name}={spec}): {accumulator.column.name!r} is stored for another result already; "
                    "choose another name."
                )
        outputs.append(Result(name, output_type, tuple(range(len(accumulators), len(accumulators) + len(added)))))
        accumulators.extend(added)
    return AccumulatorPlan(schema, tuple(keys), tuple(accumulators), tuple(outputs))


def plan_partials(schema: pa.Schema, keys: Sequence[str], results: Mapping[str, AggregateSpec]) -> AccumulatorPlan:
    """The plan of who gets the partial rows that ``plan_aggregates`` of the same arguments describes, from their schema alone."""
    require_columns(schema, keys, "key_by()")
    accumulators: list[Accumulator] = []
    outputs: list[Result] = []
    for name, spec in results.items():
        layout = _LAYOUTS[spec.kind]
        names = [f"{name}{suffix}" for suffix, _ in layout]
        require_columns(schema, names, f"agg({name}={spec}) on partial rows")
        output_type = schema.field(names[0]).type
        outputs.append(Result(name, output_type, tuple(range(len(accumulators), len(accumulators) + len(names)))))
        for column, (_, merge) in zip(names, layout, strict=True):
            field = schema.field(column)
            accumulators.append(Accumulator(Column(column, field.type, field.nullable), merge, None))
    plan = AccumulatorPlan(schema, tuple(keys), tuple(accumulators), tuple(outputs))
    if plan.partial_schema.names != schema.names:
        raise SchemaError(
            f"agg() on partial rows needs the columns {plan.partial_schema.names} but gets {schema.names}."
        )
    return plan


def _accumulators(name: str, spec: AggregateSpec, schema: pa.Schema) -> tuple[list[Accumulator], pa.DataType]:
    source = spec.column
    if source is None:
        return [Accumulator(Column(name, pa.int64(), nullable=False), Merge.COUNT, None)], pa.int64()
    data_type = _value_type(schema.field(source).type)
    where = f"agg({name}={spec})"
    match spec.kind:
        case AggregateKind.COUNT:
            types: list[pa.DataType] = [pa.int64()]
        case AggregateKind.SUM:
            types = [_sum_type(data_type, where)]
        case AggregateKind.MEAN:
            _sum_type(data_type, where)
            types = [pa.float64(), pa.int64()]
        case AggregateKind.MIN | AggregateKind.MAX if pa.types.is_nested(data_type):
            raise SchemaError(f"{where}: values of type {data_type} have no order.")
        case _:
            types = [data_type]
    parts = [
        Accumulator(Column(f"{name}{suffix}", part_type, nullable=merge is not Merge.COUNT), merge, source)
        for (suffix, merge), part_type in zip(_LAYOUTS[spec.kind], types, strict=True)
    ]
    return parts, types[0]


def _value_type(data_type: pa.DataType) -> pa.DataType:
    return data_type.value_type if isinstance(data_type, pa.DictionaryType) else data_type


def _sum_type(data_type: pa.DataType, where: str) -> pa.DataType:
    t = pa.types
    if t.is_integer(data_type):
        return pa.int64()
    if t.is_floating(data_type):
        return pa.float64()
    if isinstance(data_type, pa.Decimal128Type):
        return pa.decimal128(min(38, data_type.precision + 10), data_type.scale)
    raise SchemaError(f"{where}: a column of type {data_type} cannot be added up; it must be a number.")


def _not_an_aggregate(name: str, given: object) -> ConfigError:
    if isinstance(given, type) and issubclass(given, AggregateFunction):
        return ConfigError(f"agg({name}={given.__name__}): is the class, not an aggregate; write {given.__name__}().")
    return ConfigError(f"agg({name}={given!r}): must be an aggregate, like cw.count() or cw.sum('amount').")
