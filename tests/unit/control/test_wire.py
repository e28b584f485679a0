"""Messages as frames and back."""

import contextlib
import json
from typing import Any, get_args, get_origin, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutwater.control.messages import (
    Acknowledge,
    CollectedRows,
    CutNow,
    Deploy,
    Finish,
    Message,
    Progress,
    TriggerCheckpoint,
)
from cutwater.control.wire import decode, encode
from cutwater.errors import ControlError
from cutwater.flow.ids import CheckpointId

MESSAGE_CLASSES = get_args(Message)

text = st.text(st.characters(exclude_categories=()), max_size=8)
numbers = st.floats(allow_nan=False)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | numbers | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=6,
)


def values_of(hint: Any) -> st.SearchStrategy[Any]:
    """Values of a field's declared type, so that a message added later is tested without a word here."""
    hint = getattr(hint, "__supertype__", hint)
    arguments = get_args(hint)
    if hint is Any:
        return json_values
    if hint is float:
        return numbers
    if hint is str:
        return text
    if get_origin(hint) is tuple:
        return st.lists(values_of(arguments[0]), max_size=3).map(tuple)
    if get_origin(hint) is dict:
        return st.dictionaries(text, values_of(arguments[1]), max_size=3)
    if arguments:
        return st.one_of([values_of(argument) for argument in arguments])
    return st.from_type(hint)


def messages_of(cls: type) -> st.SearchStrategy[Any]:
    return st.builds(cls, **{field: values_of(hint) for field, hint in get_type_hints(cls).items()})


@pytest.mark.parametrize("cls", MESSAGE_CLASSES, ids=lambda cls: cls.__name__)
def test_every_message_comes_back_as_it_was_sent(cls: type) -> None:
    @given(messages_of(cls))
    def round_trip(message: Message) -> None:
        returned = decode(encode(message))
        assert returned == message
        assert type(returned) is cls

    round_trip()


def test_attachments_travel_as_frames_of_their_own() -> None:
    frames = encode(Deploy(restore={"path": "x"}, attachments=(b"\x00one", b"")))
    assert frames[1:] == [b"\x00one", b""]


def test_a_tuple_inside_free_json_arrives_as_a_list() -> None:
    returned = decode(encode(Acknowledge(CheckpointId(1), snapshot={"files": ("a", "b")}, metrics=None)))
    assert isinstance(returned, Acknowledge)
    assert returned.snapshot == {"files": ["a", "b"]}


def test_fields_with_defaults_may_be_absent() -> None:
    assert decode([b'{"type":"TriggerCheckpoint","checkpoint":3,"triggered_at":1}']) == TriggerCheckpoint(
        CheckpointId(3), 1.0
    )


@pytest.mark.parametrize(
    ("snapshot", "complaint"),
    [
        ({"handle": b"raw"}, r"Acknowledge.snapshot\['handle'\] holds bytes"),
        ({"offsets": {3: 10}}, r"snapshot\['offsets'\] has the key 3"),
        ([1, {2}], r"snapshot\[1\] holds a set"),
    ],
)
def test_what_json_would_change_is_refused_by_name(snapshot: Any, complaint: str) -> None:
    with pytest.raises(ControlError, match=complaint):
        encode(Acknowledge(CheckpointId(1), snapshot, None))


def test_attachments_other_than_bytes_are_refused() -> None:
    with pytest.raises(ControlError, match=r"attachments\[0\] is str"):
        encode(CollectedRows("uid", CheckpointId(1), 0, ("text",)))  # type: ignore[arg-type]


def test_something_else_than_a_message_is_refused() -> None:
    with pytest.raises(ControlError, match="int is not a control message"):
        encode(3)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "frames",
    [
        [],
        [b""],
        [b"\xff\xfe"],
        [b"[]"],
        [b"{}"],
        [b'{"type":3}'],
        [b'{"type":"Explode"}'],
        [b'{"type":"CutNow"}'],
        [b'{"type":"CutNow","checkpoint":"3"}'],
        [b'{"type":"CutNow","checkpoint":true}'],
        [b'{"type":"CutNow","checkpoint":3,"more":1}'],
        [b'{"type":"Finish"}', b"attachment"],
        [b'{"type":"PrintedLines","lines":"abc"}'],
        [b'{"type":"PrintedLines","lines":["a",1]}'],
        [b'{"type":"StopSources","drain":1}'],
        [b'{"type":"CollectedRows","uid":"u","checkpoint":1,"attachments":["x"]}'],
    ],
)
def test_malformed_frames_are_a_control_error(frames: list[bytes]) -> None:
    with pytest.raises(ControlError):
        decode(frames)


@given(st.sampled_from([CutNow(CheckpointId(7), 1.5), Finish(), Progress(1, 2, 0.5, 3, 4, {"late": 1})]), st.data())
def test_a_damaged_head_never_passes_as_another_error(message: Message, data: st.DataObject) -> None:
    head = bytearray(encode(message)[0])
    head[data.draw(st.integers(0, len(head) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(ControlError):
        decode([bytes(head)])


def test_the_head_is_plain_json_with_a_type_tag() -> None:
    assert json.loads(encode(CutNow(CheckpointId(7), 1.5))[0]) == {
        "type": "CutNow",
        "checkpoint": 7,
        "triggered_at": 1.5,
    }
