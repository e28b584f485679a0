"""Packets as frames of ZeroMQ and back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutwater.control.packet import (
    Acknowledgement,
    Conversation,
    LeaseAsked,
    LeaseGranted,
    Numbered,
    Packet,
    Refusal,
    from_frame,
    to_frame,
)
from cutwater.errors import ControlError
from cutwater.flow.ids import Attempt, SubtaskId

word = st.integers(0, 2**64 - 1)
conversations = st.builds(
    Conversation, word.map(Attempt), st.builds(SubtaskId, st.text(max_size=300), st.integers(0, 2**32 - 1)), word
)
packets = st.one_of(
    st.builds(Numbered, st.integers(1, 2**64 - 1), word, st.lists(st.binary(max_size=9), min_size=1, max_size=3)),
    st.builds(Acknowledgement, word),
    st.builds(LeaseAsked, word, word),
    st.builds(LeaseGranted, word),
    st.builds(Refusal, st.text()),
)


@given(conversations, packets)
def test_every_packet_comes_back_as_it_was_sent(conversation: Conversation, packet: Packet) -> None:
    assert from_frame(to_frame(conversation, packet)) == (conversation, packet)


@pytest.mark.parametrize("frame", [b"", b"x" * 49, b"CWC2" + b"\x09" * 45, b"CWC2\x01" + b"\x00" * 44])
def test_other_frames_are_a_control_error(frame: bytes) -> None:
    with pytest.raises(ControlError, match="cannot be read"):
        from_frame(frame)


@given(conversations, packets, st.integers(1, 60))
def test_a_frame_cut_short_or_with_more_behind_it_is_a_control_error(
    conversation: Conversation, packet: Packet, by: int
) -> None:
    frame = to_frame(conversation, packet)
    for wrong in (frame[:-by], frame + b"\x00" * by):
        with pytest.raises(ControlError, match="cannot be read"):
            from_frame(wrong)


def test_a_body_where_none_belongs_is_a_control_error() -> None:
    conversation = Conversation(Attempt(1), SubtaskId("map", 0), 5)
    without, with_body = to_frame(conversation, Acknowledgement(3)), to_frame(conversation, Numbered(1, 3, [b"more"]))
    kind = len(b"CWC2")
    with pytest.raises(ControlError, match="has no body"):
        from_frame(with_body[:kind] + without[kind : kind + 1] + with_body[kind + 1 :])
