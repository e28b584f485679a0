"""Keys as bytes, and back: texts of every length that words, halves and single bytes are copied and compared by."""

import pyarrow as pa
import pytest

from cutwater.state.encoded_keys import decode, encode, plain_field
from cutwater.state.key_index import KeyIndex
from cutwater.state.pointers import address

KEYS = pa.schema([("text", pa.string()), ("number", pa.int64())])


def keys_of(length: int) -> list[pa.Array]:
    """All different, each from the first in one letter."""
    texts = ["x" * length, *("x" * at + "y" + "x" * (length - at - 1) for at in range(length)), None]
    return [pa.array(texts, pa.string()), pa.array([*range(len(texts) - 1), None], pa.int64())]


@pytest.mark.parametrize("length", range(27))
def test_keys_come_back(length: int) -> None:
    columns = keys_of(length)
    encoded, starts = encode(columns, len(columns[0]))
    back = decode(starts[:-1] + address(encoded), KEYS)
    assert [column.to_pylist() for column in back] == [column.to_pylist() for column in columns]


@pytest.mark.parametrize("length", range(27))
def test_a_letter_anywhere_makes_another_key(length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    texts, _ = keys_of(length)
    # All hashes alike: only the bytes tell them apart.
    monkeypatch.setattr(
        "cutwater.state.key_index.hash_arrays", lambda columns, records: pa.array([7] * records, pa.uint64()).to_numpy()
    )
    index = KeyIndex(pa.schema([("text", pa.string())]))
    assert index.locate([texts], len(texts)).rows.tolist() == list(range(len(texts)))
    assert index.locate([texts], len(texts)).rows.tolist() == list(range(len(texts)))


WORDS = pa.dictionary(pa.int32(), pa.string())


def test_dictionaries_become_their_values_and_all_else_stays_what_it_is() -> None:
    """A new field lets other threads have the interpreter, which a cut must not."""
    kept = [
        pa.field("a", pa.int64()),
        pa.field("b", pa.struct([("c", pa.struct([("d", pa.string())]))]), nullable=False),
    ]
    assert all(plain_field(field) is field for field in kept)
    nested = pa.field("b", pa.struct([("c", pa.struct([pa.field("d", WORDS, nullable=False)]))]), nullable=False)
    within = pa.struct([("c", pa.struct([pa.field("d", pa.string(), nullable=False)]))])
    assert plain_field(nested) == pa.field("b", within, nullable=False)
    assert plain_field(pa.field("a", WORDS)) == pa.field("a", pa.string())
