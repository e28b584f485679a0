import datetime as dt
import math
import os
import subprocess
import sys
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutwater.errors import SchemaError
from cutwater.flow.columns import check_key_type
from cutwater.flow.hashing import hash_arrays, hash_columns, key_groups, unhash_words

NULL = 0xC2B2AE3D27D4EB4F
ZERO = 0x9CA066F1A4AB2EEA
ONE = 0x25B775FAECA8F520
UTC = dt.UTC
PAIR = pa.struct([("a", pa.int64()), ("b", pa.string())])

# Stored checkpoints depend on these figures: a change here orphans every key of every job.
GOLDEN: list[tuple[pa.DataType, list[Any], list[int]]] = [
    (pa.int64(), [0, 1, -1, 2**63 - 1, None], [ZERO, ONE, 0x3CD617BBBCC39640, 0xF2A9E4C522CF7451, NULL]),
    (pa.int32(), [0, 1, -1], [ZERO, ONE, 0x3CD617BBBCC39640]),
    (pa.uint8(), [0, 1, 255], [ZERO, ONE, 0x88C5053D648DB280]),
    (pa.bool_(), [True, False, None], [ONE, ZERO, NULL]),
    (
        pa.float64(),
        [0.0, -0.0, 1.5, math.nan, math.inf],
        [ZERO, ZERO, 0x35AFCF05F2013659, 0x7F9A866907B600AA, 0xA5B3CD752B612C29],
    ),
    (pa.float32(), [0.0, 1.5], [ZERO, 0x35AFCF05F2013659]),
    (
        pa.string(),
        ["", "a", "12345678", "123456789", "grüße", None],
        [ZERO, 0x9EF1E0496E0B0D35, 0x896108643D0B9440, 0xCAC39376809C8411, 0xF68AF2A7543BEC18, NULL],
    ),
    (pa.large_string(), ["a", "123456789"], [0x9EF1E0496E0B0D35, 0xCAC39376809C8411]),
    (pa.string_view(), ["a", "123456789"], [0x9EF1E0496E0B0D35, 0xCAC39376809C8411]),
    (pa.binary(), [b"", b"\0", b"\0\0"], [ZERO, 0x63B78540A2C9BCA3, 0xF766A8A1668CFF16]),
    (pa.date32(), [dt.date(1970, 1, 2), dt.date(2024, 2, 29)], [ONE, 0xAF448212FCE5F007]),
    (pa.timestamp("us", "UTC"), [dt.datetime(2024, 2, 29, 12, tzinfo=UTC)], [0x6E31ED243F1CBB93]),
    (pa.decimal128(10, 2), [Decimal("1.50"), Decimal("-7.00")], [0x7A9CF6B009849D67, 0x43FA1B0DBFF07959]),
    (
        pa.dictionary(pa.int32(), pa.string()),
        ["a", "123456789", None],
        [0x9EF1E0496E0B0D35, 0xCAC39376809C8411, NULL],
    ),
    (PAIR, [{"a": 1, "b": "x"}, {"a": None, "b": None}, None], [0x588B13AB8EBC9783, 0x029DCBD4EAB7A9B5, NULL]),
    (pa.null(), [None], [NULL]),
]


@pytest.mark.parametrize(("data_type", "values", "expected"), GOLDEN, ids=[str(case[0]) for case in GOLDEN])
def test_hashes_are_pinned_for_ever(data_type: pa.DataType, values: list[Any], expected: list[int]) -> None:
    array = pa.array(values, data_type)
    assert [hex(h) for h in hash_arrays([array], len(array)).tolist()] == [hex(h) for h in expected]


def test_composite_hashes_are_pinned_for_ever() -> None:
    batch = pa.record_batch({"k": [1, 1, 2], "other": [0, 0, 0], "s": ["a", "b", "a"]})
    expected = [0xCC88F93726965223, 0x9E13784BF55D647B, 0xDFCC2DECA43C2E0C]
    assert hash_columns(batch, ["k", "s"]).tolist() == expected


def murmur_finaliser(x: int) -> int:
    x ^= x >> 33
    x = x * 0xFF51AFD7ED558CCD % 2**64
    x ^= x >> 33
    x = x * 0xC4CEB9FE1A85EC53 % 2**64
    return x ^ x >> 33


@given(st.lists(st.integers(-(2**63), 2**63 - 1)))
def test_integers_hash_by_murmurs_finaliser_and_back(values: list[int]) -> None:
    hashes = hash_arrays([pa.array(values, pa.int64())], len(values))
    assert hashes.tolist() == [murmur_finaliser((v % 2**64) ^ 0x9E3779B97F4A7C15) for v in values]
    assert unhash_words(hashes).tolist() == values


@given(st.lists(st.one_of(st.none(), st.text(max_size=20))), st.integers(0, 5))
def test_a_slice_hashes_like_its_own_values(values: list[str | None], start: int) -> None:
    whole = pa.array(values, pa.string())
    part = whole.slice(min(start, len(values)))
    assert hash_arrays([part], len(part)).tolist() == hash_arrays([whole], len(whole)).tolist()[start:]


def test_every_nan_is_one_key() -> None:
    other_nan = np.array([0x7FF8000000000001, 0xFFF8000000000000], np.uint64).view(np.float64)
    hashes = hash_arrays([pa.array(other_nan)], 2)
    assert set(hashes.tolist()) == {0x7F9A866907B600AA}


def test_an_unaligned_buffer_hashes_alike() -> None:
    raw = b"x" + np.arange(100, dtype=np.int64).tobytes()
    unaligned = pa.Array.from_buffers(pa.int64(), 100, [None, pa.py_buffer(raw).slice(1)])
    assert hash_arrays([unaligned], 100).tolist() == hash_arrays([pa.array(range(100))], 100).tolist()


def test_consecutive_integers_spread_over_high_and_low_bits() -> None:
    hashes = hash_arrays([pa.array(np.arange(64_000))], 64_000)
    for bits in (hashes & np.uint64(63), hashes >> np.uint64(58)):
        counts = np.bincount(bits.astype(np.int64), minlength=64)
        assert counts.min() > 850
        assert counts.max() < 1150


@given(st.lists(st.integers(0, 2**64 - 1)), st.sampled_from([1, 7, 100, 128, 32768]))
def test_a_key_group_is_the_hash_modulo_max_parallelism(hashes: list[int], max_parallelism: int) -> None:
    groups = key_groups(np.array(hashes, np.uint64), max_parallelism)
    assert groups.dtype == np.int32
    assert groups.tolist() == [h % max_parallelism for h in hashes]


def test_hashes_do_not_depend_on_the_process() -> None:
    program = (
        "import pyarrow as pa; from cutwater.flow.hashing import hash_arrays;"
        "print(hash_arrays([pa.array(['word', 'count'])], 2).tolist())"
    )
    env = {**os.environ, "PYTHONHASHSEED": "12345"}
    other = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, check=True)
    assert other.stdout.strip() == str(hash_arrays([pa.array(["word", "count"])], 2).tolist())


def test_an_unknown_key_column_is_named_with_the_available_ones() -> None:
    with pytest.raises(SchemaError, match="no key column 'usr'; available: user, n"):
        hash_columns(pa.record_batch({"user": ["a"], "n": [1]}), ["usr"])


def test_a_map_cannot_be_a_key() -> None:
    with pytest.raises(SchemaError, match=r"key column 'm\.inner' has the type map"):
        check_key_type("m", pa.struct([("inner", pa.map_(pa.string(), pa.int64()))]))
