"""A file of rows in sections: each can be read without the others, so that at another parallelism a subtask reads only those that
may hold rows of its own key groups.

RocksDB hands out its rows in the order of their key groups: a section has few of them. Rows in no order, such as those of its cache
and all of the Memory backend, stay together. Where they come first they stand in one section with the schema of the table, and
nothing is hashed twice for it: its checksum is that of the file so far.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from cutwater.checkpoint.written_file import WrittenFile
from cutwater.flow.key_groups import KeyGroupRange
from cutwater.state.changes import KeyGroups, true_groups
from cutwater.state.stored import Section, StoredFile

SECTION_BYTES = 4 << 20
"""That a section in order has at least, where another one in order follows: each is one more entry in the metadata and one more
request to the storage. One with a single key group may have any number."""
_LOOKED_AT = 64


@dataclass(frozen=True, slots=True)
class GroupsOfRows:
    """First and last key group of rows that stand together; and whether the rows are in the order of theirs."""

    first: int
    last: int
    in_order: bool


NO_GROUPS = GroupsOfRows(0, -1, in_order=False)


def groups_of_rows(stored: KeyGroups) -> GroupsOfRows:
    """Of some rows, as their column has them."""
    groups = true_groups(stored)
    # A few of them tell of most rows in no order, and let no other thread take the interpreter.
    few = groups[:: len(groups) // _LOOKED_AT + 1]
    if all((each[1:] >= each[:-1]).all() for each in (few, groups)):
        return GroupsOfRows(int(groups[0]), int(groups[-1]), in_order=True)
    return GroupsOfRows(int(groups.min()), int(groups.max()), in_order=False)


class WrittenSections:
    """Of a file while it is written, on the snapshot thread."""

    def __init__(self, file: WrittenFile) -> None:
        self._file = file
        self._ended: list[Section] = []
        self._begin = 0
        self._groups = NO_GROUPS

    def ends_before(self, rows: GroupsOfRows) -> bool:
        """Whether ``rows``, which come next, are for a new section."""
        now = self._groups
        if not (now.in_order and rows.in_order):
            return now.in_order != rows.in_order
        is_large = self._file.tell() - self._begin >= SECTION_BYTES
        return rows.first < now.last or (is_large and rows.last > now.first)

    def add(self, rows: GroupsOfRows) -> None:
        now = self._groups
        is_first = now.first > now.last
        self._groups = (
            rows if is_first else GroupsOfRows(min(now.first, rows.first), max(now.last, rows.last), rows.in_order)
        )

    def end(self) -> None:
        """All that belongs to the section is written to the file."""
        offset, size, checksum = self._file.end_section()
        self._ended.append(Section(offset, size, checksum, self._groups.first, self._groups.last))
        self._begin, self._groups = offset + size, NO_GROUPS

    def stored(self) -> tuple[StoredFile, KeyGroupRange]:
        """The file, of which all sections have ended, and the key groups in it. It has sections only if they spare somebody
        something."""
        held = [each for each in self._ended if each.first_key_group <= each.last_key_group]
        first = min((each.first_key_group for each in held), default=0)
        last = max((each.last_key_group for each in held), default=-1)
        narrow = [each for each in self._ended[1:] if (each.first_key_group, each.last_key_group) != (first, last)]
        sections = tuple(self._ended) if narrow and self._begin > SECTION_BYTES else ()
        return self._file.stored(sections), KeyGroupRange(first, last)


def sections_for(file: StoredFile, own: KeyGroupRange) -> Sequence[Section]:
    """Those that rows of these key groups may be in, behind that of the schema."""
    return [
        each
        for number, each in enumerate(file.sections)
        if number == 0 or (each.first_key_group <= own.last and each.last_key_group >= own.first)
    ]
