from sys import getsizeof
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutwater.state.parted_dict import DICTS, PartedDict, taken_out

KEYS: dict[str, Any] = {
    "numbers": range(20_000),
    "multiples": range(-(1 << 40), (20_000 << 20) - (1 << 40), 1 << 20),
    "thousands": range(0, 20_000_000, 1000),
    "fractions": [i / 8 for i in range(20_000)],
    "texts": [f"user {i}" for i in range(20_000)],
    "pairs": [(i % 7, str(i)) for i in range(20_000)],
}


@given(st.lists(st.tuples(st.sampled_from(["put", "pop", "update", "take"]), st.integers(-50, 50), st.integers())))
def test_it_holds_what_a_dict_does(script: list[tuple[str, int, int]]) -> None:
    parted, plain = PartedDict(), dict[int, int]()
    for step, key, value in script:
        match step:
            case "put":
                parted[key] = plain[key] = value
            case "pop":
                assert parted.pop(key, None) == plain.pop(key, None)
            case "update":
                more = [(key + i, value) for i in range(20)]
                parted.update(more)
                plain.update(more)
            case "take":
                taken = list(taken_out(parted, abs(key)))
                assert len(taken) == min(abs(key), len(plain))
                assert all(plain.pop(gone) == was for gone, was in taken)
        assert dict(parted.items()) == plain
        assert (len(parted), bool(parted)) == (len(plain), bool(plain))
        assert (parted.get(key, "none"), key in parted) == (plain.get(key, "none"), key in plain)


@pytest.mark.parametrize("keys", KEYS.values(), ids=KEYS)
def test_no_dict_has_much_more_than_its_share_whatever_the_keys_are(keys: Any) -> None:
    parted = PartedDict((key, None) for key in keys)
    assert max(map(len, parted.dicts)) < 2 * len(keys) / DICTS


def test_the_dicts_do_not_all_grow_at_the_same_time() -> None:
    parted = PartedDict()
    grown: list[int] = []
    sizes = [0] * DICTS
    for start in range(10_000, 40_000, 1000):
        parted.update((key, None) for key in range(start))
        before, sizes = sizes, list(map(getsizeof, parted.dicts))
        grown.append(sum(new != old for new, old in zip(sizes, before, strict=True)))
    assert max(grown[1:]) <= DICTS // 4
