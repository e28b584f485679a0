"""What every state backend promises, as checks that can be run on one: ours, and those that users write.

Each check opens stores of its own, uses them as operators do, and raises AssertionError with what was broken.
"""

import pickle
from collections.abc import Callable
from functools import partial

import pyarrow as pa

from cutwater.arguments import takes_no_others
from cutwater.flow.hashing import hash_columns
from cutwater.state.backend import StateBackend, checked_backend
from cutwater.state.tables import Column, JoinSide, JoinTable, Merge, TooManyPairs, Update
from cutwater.testing.bucket_contract import buckets_are_read_as_they_were_whatever_comes_and_is_frozen_meanwhile
from cutwater.testing.contract_batches import batches_of, check_groups
from cutwater.testing.contract_tables import KINDS, expect, keys_of_every_type, opened
from cutwater.testing.handover_contract import (
    stores_have_all_that_operators_call,
    unknown_and_repeated_fates_change_nothing,
    what_a_store_says_that_it_took_over_is_there,
)
from cutwater.testing.increment_contract import (
    a_checkpoint_with_no_new_input_stores_nothing,
    increments_add_up_whatever_completes_and_whenever_that_is_heard,
    increments_are_read_at_any_parallelism,
)
from cutwater.testing.many_tables_contract import (
    every_table_of_a_store_is_frozen_each_time,
    many_tables_are_restored_at_another_parallelism_and_back,
)
from cutwater.testing.row_contract import (
    owned_values_change_in_place_and_frozen_ones_do_not,
    rows_by_slot_are_in_the_key_groups_of_their_keys,
    rows_hold_values_of_every_type,
    rows_know_keys_of_every_type,
    what_is_expected_is_what_is_there,
)
from cutwater.testing.snapshot_contract import (
    a_restored_snapshot_goes_on_at_any_parallelism,
    a_snapshot_that_is_not_read_is_released,
    a_snapshot_without_new_input_equals_the_restored_one,
    frozen_tables_are_read_while_the_loop_writes,
    what_does_not_fit_is_refused,
)
from cutwater.testing.volume_contract import very_many_keys_are_aggregated, very_many_rows_are_all_there

Check = Callable[[StateBackend], None]


@partial(takes_no_others, found="cw.testing.")
def check_state_backend(backend: StateBackend) -> None:
    """Run every check on ``backend``; AssertionError with the first that fails."""
    checked_backend(backend, "check_state_backend: ")
    for check in STATE_CHECKS:
        try:
            check(backend)
        except Exception as error:
            what = str(error) if isinstance(error, AssertionError) else f"{type(error).__name__}: {error}"
            raise AssertionError(f"{check.__name__.replace('_', ' ')}: {what}") from error


def the_setting_can_be_sent_to_workers(backend: StateBackend) -> None:
    expect(pickle.loads(pickle.dumps(backend)), backend, "the setting after pickling")  # noqa: S301 (our own bytes)
    for name in ("incremental", "asynchronous"):
        expect(type(getattr(backend, name)), bool, f"the type of {name}")


def stores_share_nothing(backend: StateBackend) -> None:
    for kind in KINDS:
        with opened(backend) as one, opened(backend) as other:
            written, untouched = kind.open(one), kind.open(other)
            kind.write(written, 0)
            expect(kind.content(untouched), kind.content(kind.of_memory()), f"{kind.name}: another store's content")


def tables_hold_what_was_written(backend: StateBackend) -> None:
    for kind in KINDS:
        with opened(backend) as store:
            table, model = kind.open(store), kind.of_memory()
            for step in range(5):
                for each in (table, model):
                    kind.write(each, step)
                store.tend()
                expect(kind.content(table), kind.content(model), f"{kind.name} after {step + 1} writes")


def aggregates_know_keys_of_every_type(backend: StateBackend) -> None:
    for keys in keys_of_every_type():
        with opened(backend) as store:
            table = store.aggregates("n", keys.schema, [Column("n", pa.int64(), nullable=False)])
            for _ in range(3):
                table.update(table.locate(keys), [Update(0, Merge.COUNT)])
            touched = table.locate(keys)
            [counts] = table.read(touched.rows)
            expect(counts.to_pylist(), [3 * n for n in _occurrences(keys)], f"counts by {keys.schema}")
            expect(len(table), len(touched.unique), f"number of keys by {keys.schema}")
            for batch in batches_of(store)["n"]:
                check_groups(batch, keys.schema.names)


def _occurrences(keys: pa.RecordBatch) -> list[int]:
    """How often each row's key is among the rows; by hash, as -0.0 and 0.0, and all NaNs, are one key."""
    hashes = hash_columns(keys, keys.schema.names).tolist()
    return [hashes.count(one) for one in hashes]


def joins_find_rows_in_the_order_of_arrival(backend: StateBackend) -> None:
    left = JoinSide(pa.schema([("k", pa.int64()), ("a", pa.int64())]), ("k",))
    right = JoinSide(pa.schema([("b", pa.int64()), ("key", pa.int64())]), ("key",))
    with opened(backend) as store:
        table = store.join("pairs", left, right, "bucket")
        for number in range(4):
            table.add(
                0, 7, pa.RecordBatch.from_pylist([{"k": k, "a": 10 * number + k} for k in (1, 2, 1)], left.schema)
            )
        asked = pa.RecordBatch.from_pylist([{"b": 0, "key": k} for k in (2, 3, 1)], right.schema)
        which, rows = table.matches(1, 7, asked)
        expect(which.tolist(), [0] * 4 + [2] * 8, "which rows have pairs")
        expect(rows.column("a").to_pylist(), [2, 12, 22, 32, 1, 1, 11, 11, 21, 21, 31, 31], "their pairs")
        expect(len(table.matches(1, 8, asked)[0]), 0, "pairs in another bucket")
        _too_many_pairs_are_not_made(table, left, right)


def _too_many_pairs_are_not_made(table: JoinTable, left: JoinSide, right: JoinSide) -> None:
    many = 300
    table.add(0, 9, pa.RecordBatch.from_pylist([{"k": 1, "a": n} for n in range(many)], left.schema))
    asked = pa.RecordBatch.from_pylist([{"b": n, "key": 1} for n in range(many)], right.schema)
    try:
        table.matches(1, 9, asked, 1000)
    except TooManyPairs as error:
        expect(0 <= error.share < 1, True, "a share of the rows")
    else:
        raise AssertionError(f"{many * many} pairs were made where there was room for few")
    which, rows = table.matches(1, 9, asked, 1 << 30)
    expect(which.tolist(), [n for n in range(many) for _ in range(many)], "which rows have pairs, where all have room")
    expect(rows.column("a").to_pylist(), list(range(many)) * many, "their pairs")


STATE_CHECKS: tuple[Check, ...] = (
    the_setting_can_be_sent_to_workers,
    stores_have_all_that_operators_call,
    stores_share_nothing,
    tables_hold_what_was_written,
    aggregates_know_keys_of_every_type,
    rows_know_keys_of_every_type,
    rows_by_slot_are_in_the_key_groups_of_their_keys,
    rows_hold_values_of_every_type,
    owned_values_change_in_place_and_frozen_ones_do_not,
    what_is_expected_is_what_is_there,
    frozen_tables_are_read_while_the_loop_writes,
    a_snapshot_that_is_not_read_is_released,
    a_restored_snapshot_goes_on_at_any_parallelism,
    a_snapshot_without_new_input_equals_the_restored_one,
    what_does_not_fit_is_refused,
    joins_find_rows_in_the_order_of_arrival,
    buckets_are_read_as_they_were_whatever_comes_and_is_frozen_meanwhile,
    every_table_of_a_store_is_frozen_each_time,
    what_a_store_says_that_it_took_over_is_there,
    many_tables_are_restored_at_another_parallelism_and_back,
    unknown_and_repeated_fates_change_nothing,
    increments_add_up_whatever_completes_and_whenever_that_is_heard,
    increments_are_read_at_any_parallelism,
    a_checkpoint_with_no_new_input_stores_nothing,
    very_many_rows_are_all_there,
    very_many_keys_are_aggregated,
)
