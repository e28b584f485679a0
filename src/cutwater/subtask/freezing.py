"""What of the frozen state a checkpoint of a kind keeps."""

from collections.abc import Mapping

from cutwater.operators.operator import OperatorSnapshot
from cutwater.state.frozen import WholeTable
from cutwater.subtask.setup import Guarantee


def kept(
    frozen: Mapping[str, OperatorSnapshot], guarantee: Guarantee, *, savepoint: bool
) -> Mapping[str, OperatorSnapshot]:
    if guarantee is Guarantee.AT_MOST_ONCE:
        # It keeps no state.
        frozen = {uid: without_tables(snapshot) for uid, snapshot in frozen.items()}
    if savepoint:
        frozen = {uid: _whole(snapshot) for uid, snapshot in frozen.items()}
    return frozen


def without_tables(snapshot: OperatorSnapshot) -> OperatorSnapshot:
    """They are let go at once."""
    for table in snapshot.tables:
        table.release()
    return OperatorSnapshot(inline=snapshot.inline)


def _whole(snapshot: OperatorSnapshot) -> OperatorSnapshot:
    """A savepoint is complete in itself: no table of it references what was stored before."""
    return OperatorSnapshot(inline=snapshot.inline, tables=[WholeTable(table) for table in snapshot.tables])
