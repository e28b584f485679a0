"""Packets as frames and back."""

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
    from_frames,
    to_frames,
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
    assert from_frames(to_frames(conversation, packet)) == (conversation, packet)


@pytest.mark.parametrize("frames", [[], [b""], [b"x" * 41], [b"CWC1" + b"\x09" * 37], [b"CWC1\x01" + b"\x00" * 36]])
def test_other_frames_are_a_control_error(frames: list[bytes]) -> None:
    with pytest.raises(ControlError, match="cannot be read"):
        from_frames(frames)


def test_a_body_where_none_belongs_is_a_control_error() -> None:
    frames = to_frames(Conversation(Attempt(1), SubtaskId("map", 0), 5), Acknowledgement(3))
    with pytest.raises(ControlError, match="has no body"):
        from_frames([*frames, b"more"])
