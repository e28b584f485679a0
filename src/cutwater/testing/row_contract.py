"""What backends promise of rows by key: keys and values of every type, values that change in place, and those read ahead."""

from typing import Any

import pyarrow as pa

from cutwater.state.backend import StateBackend
from cutwater.testing.contract_batches import batches_of, check_groups, read
from cutwater.testing.contract_tables import expect, keys_of_every_type, opened, values_of_every_type


def rows_know_keys_of_every_type(backend: StateBackend) -> None:
    from cutwater.operators.keyed_state import keys_of

    for keys in keys_of_every_type():
        names = keys.schema.names
        with opened(backend) as store:
            table = store.rows("seen", keys.schema, pa.int64())
            model: dict[Any, int] = {}
            for step in range(3):
                for number, key in enumerate(keys_of(keys, names)):
                    table.put(key, model.setdefault(key, number) + step)
                    expect(table.get(key), model[key] + step, f"value under {key!r}")
                store.tend()
            expect(dict(table.items()), {k: v + 2 for k, v in model.items()}, f"items by {keys.schema}")
            batches = batches_of(store)["seen"]
            for batch in batches:
                check_groups(batch, names)
        with opened(backend) as store:
            store.restore("seen", batches)
            table = store.rows("seen", keys.schema, pa.int64())
            for key, value in model.items():
                expect(table.get(key), value + 2, f"restored value under {key!r}")


def rows_by_slot_are_in_the_key_groups_of_their_keys(backend: StateBackend) -> None:
    from cutwater.operators.keyed_state import bare_keys_of

    for keys in keys_of_every_type():
        names = keys.schema.names
        of_key = [key if len(names) > 1 else (key,) for key in bare_keys_of(keys, names)]
        model = {(*key, slot): [number, slot] for number, key in enumerate(of_key) for slot in (-1, 1 << 40)}
        with opened(backend) as store:
            table = store.rows("seen", keys.schema, pa.list_(pa.int64()), "slot")
            for key, value in model.items():
                table.put(key, value)
            store.tend()
            expect(dict(table.items()), model, f"items by {keys.schema} and slot")
            batches = batches_of(store)["seen"]
            for batch in batches:
                expect(batch.schema.names[:-2], [*names, "slot"], "columns of keys and slots")
                check_groups(batch, names)
        with opened(backend) as store:
            store.restore("seen", batches)
            table = store.rows("seen", keys.schema, pa.list_(pa.int64()), "slot")
            for key, value in model.items():
                expect(table.get(key), value, f"restored value under {key!r}")


def rows_hold_values_of_every_type(backend: StateBackend) -> None:
    keys = pa.schema([("k", pa.int64())])
    for data_type, values in values_of_every_type():
        with opened(backend) as store:
            table = store.rows("value", keys, data_type)
            for key, value in enumerate(values):
                table.put(key, value)
                store.tend()
            expect([table.get(key) for key in range(len(values))], list(values), f"values of {data_type}")
            batches = batches_of(store)["value"]
        with opened(backend) as store:
            store.restore("value", batches)
            table = store.rows("value", keys, data_type)
            expect([table.get(key) for key in range(len(values))], list(values), f"restored values of {data_type}")


def owned_values_change_in_place_and_frozen_ones_do_not(backend: StateBackend) -> None:
    with opened(backend) as store:
        table = store.rows("list", pa.schema([("k", pa.string())]), pa.list_(pa.int64()))
        expect(table.own("a", list), None, "what is owned of nothing")
        table.put("a", [1])
        table.put("gone", [0])
        for number in range(2, 6):
            [frozen] = store.freeze()
            before = list(range(1, number))
            owned = table.own("a", list)
            owned.append(number)
            table.delete("gone")
            for _ in range(3):
                store.tend()
            expect(table.get("a"), [*before, number], "an owned value")
            expect(table.get("gone"), None, "a deleted value")
            held = {row["k"]: row["list"] for batch in read(frozen) for row in batch.to_pylist()}
            expect(held.pop("gone", None), [0] if number == 2 else None, "what was deleted after the cut")
            expect(held, {"a": before}, "an owned value at the cut")


def what_is_expected_is_what_is_there(backend: StateBackend) -> None:
    """Whether values are read ahead or not, what is put and deleted after that counts."""
    keys = pa.schema([("k", pa.int64())])
    with opened(backend) as store:
        table, other = store.rows("one", keys, pa.int64()), store.rows("other", keys, pa.int64())
        model: dict[int, int] = {}
        for step in range(40):
            batch = [(7 * step + i * i) % 60 for i in range(25)]
            store.expect(batch)
            for key in batch:
                expect(table.get(key), model.get(key), f"value under {key} in step {step}")
                if (key + step) % 5 == 0:
                    table.delete(key)
                    model.pop(key, None)
                else:
                    table.put(key, step)
                    other.put(key, step)
                    model[key] = step
            store.tend()
        expect(dict(table.items()), model, "items in the end")
