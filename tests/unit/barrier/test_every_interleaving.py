"""Both machines under *every* interleaving of a few channels, barriers, ENDs and aborts, with held channels really held.

Each channel delivers its own script in order (barriers ascending, some skipped, maybe END); aborts come at any moment. Held
channels deliver nothing until they are released, as in the intake. States already seen are not explored again.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import combinations, product

import pytest

from cutwater.barrier.alignment import Alignment, WaitingForFirstBarrier, WaitingForRemainingBarriers
from cutwater.barrier.effects import AbandonAlignment, CutHere, HoldChannel, ReleaseChannels
from cutwater.barrier.tracking import BarrierTracking
from cutwater.flow.ids import ChannelId, CheckpointId

END = 0
"""In a channel's script; every other number is a barrier."""


@dataclass(frozen=True, slots=True)
class Node:
    """One moment: the machine, how far each channel is, who is held, what was cut, aborted and abandoned."""

    machine: Alignment | BarrierTracking
    at: tuple[int, ...]
    held: frozenset[ChannelId] = frozenset()
    cut: tuple[CheckpointId, ...] = ()
    aborted: frozenset[CheckpointId] = frozenset()
    abandoned: frozenset[CheckpointId] = frozenset()

    @property
    def identity(self) -> object:
        machine = self.machine
        told: object = machine
        if isinstance(machine, BarrierTracking):
            told = (machine.live, machine.settled, machine.aborted, tuple(sorted(machine.arrived.items())))
        return told, self.at, self.held, self.cut, self.aborted, self.abandoned


Scripts = tuple[tuple[int, ...], ...]


def explore(start: Alignment | BarrierTracking, scripts: Scripts, aborts: frozenset[CheckpointId]) -> int:
    """Walk through every state that can be reached; how many there are. Raises at the first that breaks a promise."""
    first = Node(start, tuple(0 for _ in scripts))
    seen, waiting = {first.identity}, [first]
    while waiting:
        node = waiting.pop()
        _check(node, scripts)
        if all(node.at[index] == len(script) or index in node.held for index, script in enumerate(scripts)):
            _check_the_end(node, scripts)
        for each in _following(node, scripts, aborts):
            if each.identity not in seen:
                seen.add(each.identity)
                waiting.append(each)
    return len(seen)


def _following(node: Node, scripts: Scripts, aborts: frozenset[CheckpointId]) -> Iterator[Node]:
    for index, script in enumerate(scripts):
        channel = ChannelId(index)
        if channel in node.held or node.at[index] == len(script):
            continue
        element = script[node.at[index]]
        at = (*node.at[:index], node.at[index] + 1, *node.at[index + 1 :])
        if element == END:
            machine, effects = node.machine.channel_ended(channel)
        else:
            machine, effects = node.machine.barrier_arrived(channel, CheckpointId(element))
        yield _after(replace(node, machine=machine, at=at), effects, scripts)
    for checkpoint in aborts - node.aborted:
        machine, effects = node.machine.checkpoint_aborted(checkpoint)
        yield _after(replace(node, machine=machine, aborted=node.aborted | {checkpoint}), effects, scripts)


def _after(node: Node, effects: tuple[object, ...], scripts: Scripts) -> Node:
    for effect in effects:
        match effect:
            case HoldChannel(channel):
                assert channel not in node.held, "a held channel is held again"
                node = replace(node, held=node.held | {channel})
            case ReleaseChannels(channels):
                node = replace(node, held=node.held - channels)
            case CutHere(checkpoint):
                _check_cut(node, checkpoint, scripts)
                node = replace(node, cut=(*node.cut, checkpoint))
            case AbandonAlignment(checkpoint, _):
                assert checkpoint not in node.cut, "what was cut is abandoned"
                node = replace(node, abandoned=node.abandoned | {checkpoint})
    return node


def _check_cut(node: Node, checkpoint: CheckpointId, scripts: Scripts) -> None:
    assert checkpoint not in node.cut, f"checkpoint {checkpoint} is cut twice"
    assert not node.cut or checkpoint > node.cut[-1], f"checkpoint {checkpoint} is cut behind {node.cut[-1]}"
    assert checkpoint not in node.aborted | node.abandoned, f"checkpoint {checkpoint} is cut although it was given up"
    for index, script in enumerate(scripts):
        passed = script[: node.at[index]]
        assert checkpoint in passed or END in passed, f"cut before channel {index} delivered barrier {checkpoint}"
        if isinstance(node.machine, BarrierTracking):
            continue
        behind = passed[passed.index(checkpoint) + 1 :] if checkpoint in passed else ()
        assert not behind, f"channel {index} passed {behind} behind barrier {checkpoint} before the cut"


def _check(node: Node, scripts: Scripts) -> None:
    aligning = node.machine.aligning
    if isinstance(node.machine, BarrierTracking):
        assert not node.held, "at least once holds nothing"
        return
    assert (aligning is not None) == bool(node.held), f"aligning {aligning}, but held are {sorted(node.held)}"
    assert aligning not in node.aborted | node.abandoned, f"checkpoint {aligning} is aligned although it was given up"
    for channel in node.held:
        delivered = scripts[channel][node.at[channel] - 1]
        assert delivered == aligning, f"channel {channel} is held for {aligning} behind barrier {delivered}"


def _check_the_end(node: Node, scripts: Scripts) -> None:
    """Nothing more comes by itself: what every channel delivered was cut, and nobody is held who could be released."""
    for checkpoint in {element for script in scripts for element in script if element != END}:
        settled = checkpoint in node.cut or checkpoint in node.aborted | node.abandoned
        passed = [script[: node.at[index]] for index, script in enumerate(scripts)]
        complete = all(checkpoint in part or END in part for part in passed)
        # A sender skips a barrier only when the checkpoint was given up.
        overtaken = any(checkpoint not in part and max(part, default=0) > checkpoint for part in passed)
        assert settled or not complete or overtaken, f"checkpoint {checkpoint} was delivered everywhere and never cut"
    for channel in node.held:
        missing = [index for index, script in enumerate(scripts) if index not in node.held and END not in script]
        assert missing, f"channel {channel} is held, and nobody is left to release it"


def all_scripts(channels: int, checkpoints: int) -> Iterator[Scripts]:
    """Each channel delivers some of the barriers, ascending, and ends at some point or not."""
    barriers = tuple(range(1, checkpoints + 1))
    chosen = [subset for size in range(checkpoints + 1) for subset in combinations(barriers, size)]
    each = [subset + ending for subset in chosen for ending in ((), (END,))]
    return product(each, repeat=channels)


@pytest.mark.parametrize(("channels", "checkpoints"), [(2, 2), (2, 3), (3, 2)])
@pytest.mark.parametrize("machine", [WaitingForFirstBarrier, BarrierTracking])
def test_every_interleaving_keeps_every_promise(
    machine: type[WaitingForFirstBarrier] | type[BarrierTracking], channels: int, checkpoints: int
) -> None:
    live = frozenset(ChannelId(index) for index in range(channels))
    aborts = frozenset(CheckpointId(n) for n in range(1, checkpoints + 1 if channels == 2 else 2))
    states = sum(explore(machine(live), scripts, aborts) for scripts in all_scripts(channels, checkpoints))
    assert states > 1000


def _newer_barriers_are_ignored(
    self: WaitingForRemainingBarriers, channel: ChannelId, checkpoint: CheckpointId
) -> object:
    return REAL(self, channel, checkpoint) if checkpoint <= self.checkpoint else (self, ())


def _any_barrier_counts(self: WaitingForRemainingBarriers, channel: ChannelId, checkpoint: CheckpointId) -> object:
    return REAL(self, channel, self.checkpoint)


def _the_overtaken_stays_held(
    self: WaitingForRemainingBarriers, channel: ChannelId, checkpoint: CheckpointId
) -> tuple[Alignment, tuple[object, ...]]:
    state, effects = REAL(self, channel, checkpoint)
    return state, effects[:-1] if checkpoint > self.checkpoint else effects


def _aborted_barriers_count(
    self: WaitingForFirstBarrier, channel: ChannelId, checkpoint: CheckpointId
) -> tuple[Alignment, tuple[object, ...]]:
    return FIRST(replace(self, aborted=frozenset()), channel, checkpoint)


def _settled_barriers_count(
    self: WaitingForFirstBarrier, channel: ChannelId, checkpoint: CheckpointId
) -> tuple[Alignment, tuple[object, ...]]:
    return FIRST(replace(self, settled=CheckpointId(0)), channel, checkpoint)


REAL = WaitingForRemainingBarriers.barrier_arrived
FIRST = WaitingForFirstBarrier.barrier_arrived


@pytest.mark.parametrize(
    ("kind", "event", "broken"),
    [
        (WaitingForRemainingBarriers, "barrier_arrived", _newer_barriers_are_ignored),
        (WaitingForRemainingBarriers, "barrier_arrived", _any_barrier_counts),
        (WaitingForRemainingBarriers, "barrier_arrived", _the_overtaken_stays_held),
        (WaitingForFirstBarrier, "barrier_arrived", _aborted_barriers_count),
        (WaitingForFirstBarrier, "barrier_arrived", _settled_barriers_count),
        (WaitingForFirstBarrier, "channel_ended", lambda self, channel: (self, ())),
        (WaitingForRemainingBarriers, "checkpoint_aborted", lambda self, checkpoint: (self, ())),
    ],
    ids=[
        "r18: newer barriers are ignored", "r18: any barrier counts", "r18: the overtaken stays held",
        "r18: a pre-aborted id is aligned", "r9: an id that was cut is aligned again", "r20: END does not count",
        "r9: an abort releases nothing",
    ],
)  # fmt: skip
def test_a_broken_machine_is_caught(kind: type, event: str, broken: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kind, event, broken)
    live = frozenset({ChannelId(0), ChannelId(1)})
    aborts = frozenset({CheckpointId(1), CheckpointId(2)})
    with pytest.raises(AssertionError):
        for scripts in all_scripts(2, 2):
            explore(WaitingForFirstBarrier(live), scripts, aborts)
