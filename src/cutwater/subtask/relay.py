"""A relay passes rows of an edge that skips a level: part of the channel, without state, alignment or acknowledgement (rule 22)."""

from collections.abc import Mapping
from dataclasses import replace

from cutwater.flow.envelope import Row
from cutwater.flow.ids import ChannelId


class Relay:
    def __init__(self, hops: Mapping[ChannelId, int]) -> None:
        self._hops = dict(hops)

    def pass_on(self, row: Row) -> Row:
        return replace(row, target=self._hops[row.channel])
