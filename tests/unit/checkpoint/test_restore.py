import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutwater.checkpoint.completed import CompletedCheckpoint
from cutwater.checkpoint.restore import SubtaskRestore, plan_restore, subtask_restore_from_json
from cutwater.checkpoint.snapshot import StoredOperator, SubtaskSnapshot
from cutwater.errors import RestoreError
from cutwater.flow.ids import SubtaskId
from cutwater.flow.key_groups import key_group_range
from cutwater.state.stored import StoredFile, StoredTable
from tests.unit.checkpoint.checkpoints import completed, shape


def table(index: int, parallelism: int, *, state: str = "n", rows: int = 10, max_parallelism: int = 128) -> StoredTable:
    own = key_group_range(index, parallelism, max_parallelism)
    file = StoredFile(f"job/chk-5/{state}-{index}", 100, "00" * 32)
    return StoredTable(state, (file,), rows, own.first, own.last)


def stored(uid: str, *inlines: Any, keyed: bool = False, finished: tuple[int, ...] = ()) -> CompletedCheckpoint:
    """A checkpoint of one vertex with one operator; one inline part per old subtask."""
    p = len(inlines)
    snapshots = tuple(
        SubtaskSnapshot("v", i, i in finished, (StoredOperator(uid, inline, (table(i, p),) if keyed else ()),))
        for i, inline in enumerate(inlines)
    )
    return completed(5, snapshots=snapshots)


def restored(checkpoint: CompletedCheckpoint, uid: str, parallelism: int, **settings: Any) -> list[SubtaskRestore]:
    plan = plan_restore(checkpoint, [shape("w", (uid,), parallelism)], checkpoint.max_parallelism, {}, **settings)
    assert list(plan) == [SubtaskId("w", index) for index in range(parallelism)]
    return list(plan.values())


def inline(restores: list[SubtaskRestore], key: str) -> list[Any]:
    return [each.operators[0].inline[0].get(key) for each in restores]


def at(split: int) -> dict[str, int]:
    return {"split": split, "position": split * 10}


def test_at_equal_parallelism_nothing_moves() -> None:
    parts = [{"own": "a", "splits": [at(3)], "anything": 1}, None, "not even a dict"]
    checkpoint = stored("u", *parts, keyed=True)
    restores = restored(checkpoint, "u", 3)
    assert [each.operators[0].inline for each in restores] == [(parts[0],), (), (parts[2],)]
    assert [[f.file for t in each.tables() for f in t.files] for each in restores] == [
        [f"job/chk-5/n-{i}"] for i in range(3)
    ]


def test_splits_are_dealt_out_anew_each_with_its_position() -> None:
    checkpoint = stored("src", {"splits": [at(0), at(2)]}, {"splits": [at(1), at(3)]})
    assert inline(restored(checkpoint, "src", 3), "splits") == [[at(0), at(3)], [at(2)], [at(1)]]
    assert inline(restored(checkpoint, "src", 1), "splits") == [[at(0), at(2), at(1), at(3)]]


def test_a_subtask_that_gets_no_split_still_knows_that_it_was_restored() -> None:
    checkpoint = stored("src", {"splits": [at(0)]}, {"splits": []})
    assert inline(restored(checkpoint, "src", 3), "splits") == [[at(0)], [], []]


@given(st.integers(1, 6), st.integers(1, 6), st.integers(0, 20))
def test_no_split_is_lost_or_read_twice_at_any_parallelism(old: int, new: int, splits: int) -> None:
    checkpoint = stored("src", *({"splits": [at(s) for s in range(splits) if s % old == i]} for i in range(old)))
    dealt = [entry for part in inline(restored(checkpoint, "src", new), "splits") for entry in part]
    assert sorted(dealt, key=lambda each: each["split"]) == [at(s) for s in range(splits)]


def test_a_split_that_two_subtasks_hold_is_refused_on_rescale() -> None:
    checkpoint = stored("src", {"splits": [at(0)]}, {"splits": [at(0)]})
    with pytest.raises(RestoreError, match="'src' in checkpoint 5 holds splits twice: 0"):
        restored(checkpoint, "src", 3)


def test_committables_follow_their_old_subtask() -> None:
    checkpoint = stored("sink", *({"committables": [f"t{i}"]} for i in range(4)))
    assert inline(restored(checkpoint, "sink", 3), "committables") == [["t0", "t3"], ["t1"], ["t2"]]
    assert inline(restored(checkpoint, "sink", 6), "committables") == [["t0"], ["t1"], ["t2"], ["t3"], [], []]


def test_that_one_subtask_rested_is_known_to_all_at_another_parallelism() -> None:
    checkpoint = stored("u", {"watermarks": [5], "rested": [True]}, {"watermarks": [9], "rested": []})
    assert inline(restored(checkpoint, "u", 3), "rested") == [[True]] * 3


def test_how_long_the_buckets_of_a_join_are_is_known_to_all_at_another_parallelism() -> None:
    checkpoint = stored("u", {"widths": [20]}, {"widths": [20]})
    assert inline(restored(checkpoint, "u", 3), "widths") == [[20, 20]] * 3


def test_time_is_that_of_the_slowest_and_a_subtask_that_knew_of_none_is_the_slowest() -> None:
    known = stored("u", {"watermarks": [5]}, {"watermarks": [9]})
    assert inline(restored(known, "u", 3), "watermarks") == [[5, 9]] * 3
    for unknown in ({"watermarks": []}, {}, None):
        checkpoint = stored("u", {"watermarks": [5]}, unknown)
        assert inline(restored(checkpoint, "u", 3), "watermarks") == [[]] * 3


def test_key_groups_of_subtasks_that_were_further_are_known_with_their_time() -> None:
    """Of 128: what their subtask had told must not be told again where time goes on from the slowest."""
    uneven = stored("u", {"watermarks": [5]}, {"watermarks": [9]})
    assert inline(restored(uneven, "u", 4), "told") == [[], [], [[64, 127, 9]], [[64, 127, 9]]]
    assert inline(restored(stored("u", {"watermarks": [5]}, {"watermarks": [5]}), "u", 4), "told") == [[]] * 4
    unknown = stored("u", {"watermarks": []}, {"watermarks": [9], "told": [[120, 127, 11]]})
    assert inline(restored(unknown, "u", 4), "told") == [[], [], [[64, 127, 9]], [[120, 127, 11], [64, 127, 9]]]


def test_what_was_due_and_not_done_becomes_due_again_when_time_comes_there() -> None:
    """At equal parallelism it is done at once; else a subtask that had come further must not carry the others along."""
    checkpoint = stored("u", {"watermarks": [5], "due": [20]}, {"watermarks": [9]})
    assert inline(restored(checkpoint, "u", 2), "due") == [[20], None]
    moved = restored(checkpoint, "u", 3)
    assert inline(moved, "watermarks") == [[5, 9]] * 3
    assert inline(moved, "due") == [None] * 3


def test_broadcast_state_is_that_of_the_subtask_whose_rows_in_flight_follow_it() -> None:
    """The other had applied more: what it had applied is still on its way to the first, and would be applied twice."""
    checkpoint = stored("op", {"broadcast_state": {"r": []}}, {"broadcast_state": {"r": [["a", 1]]}})
    assert inline(restored(checkpoint, "op", 3), "broadcast_state") == [{"r": []}] * 3


def test_union_state_goes_to_everybody_at_equal_parallelism_too() -> None:
    """Rule 35. All else stays where it was."""
    checkpoint = stored("u", {"list_state": [1], "union_state": [10]}, None, {"list_state": [3], "union_state": [30]})
    restores = restored(checkpoint, "u", 3)
    assert inline(restores, "union_state") == [[10, 30]] * 3
    assert inline(restores, "list_state") == [[1], None, [3]]


def elements(state: str, *values: int) -> list[Any]:
    return [{"state": state, "value": value} for value in values]


def test_of_several_list_states_each_is_dealt_out_to_all() -> None:
    checkpoint = stored("op", *({"list_state": [*elements("a", i), *elements("b", 10 + i)]} for i in range(4)))
    assert inline(restored(checkpoint, "op", 2), "list_state") == [
        [*elements("a", 0, 2), *elements("b", 10, 12)],
        [*elements("a", 1, 3), *elements("b", 11, 13)],
    ]


def test_list_union_and_broadcast_state_move_each_in_its_way() -> None:
    parts = [
        {"list_state": elements("s", i, i + 10), "union_state": [i], "broadcast_state": {"r": 1}, "own": i}
        for i in range(2)
    ]
    restores = restored(stored("op", *parts), "op", 3)
    assert inline(restores, "list_state") == [elements("s", 0, 11), elements("s", 10), elements("s", 1)]
    assert inline(restores, "union_state") == [[0, 1]] * 3
    assert inline(restores, "broadcast_state") == [{"r": 1}] * 3
    assert inline(restores, "own") == [None] * 3


@pytest.mark.parametrize("part", [{"offsets": 1}, ["a"], "text"])
def test_inline_state_that_nobody_can_move_is_refused_by_name(part: Any) -> None:
    with pytest.raises(RestoreError, match=r"uid 'op', subtask 0.*parallelism 2 to 3.*Use parallelism 2"):
        restored(stored("op", part, None), "op", 3)


@given(st.integers(1, 9), st.integers(1, 9), st.sampled_from([9, 16, 128]))
def test_every_key_group_is_restored_by_its_owner_at_any_parallelism(old: int, new: int, groups: int) -> None:
    snapshots = tuple(
        SubtaskSnapshot("v", i, False, (StoredOperator("u", None, (table(i, old, max_parallelism=groups),)),))
        for i in range(old)
    )
    plan = plan_restore(
        completed(5, snapshots=snapshots, max_parallelism=groups), [shape("v", ("u",), new)], groups, {}
    )
    for each in plan.values():
        needed = set(range(each.key_groups.first, each.key_groups.last + 1))
        covered = [set(range(t.first_key_group, t.last_key_group + 1)) for t in each.tables()]
        assert needed <= set().union(*covered)
        assert all(needed & own for own in covered)


def test_state_without_key_groups_is_bound_to_its_parallelism() -> None:
    bound = StoredTable("channel", (StoredFile("f", 10, "00"),), 3, 0, -1)
    snapshots = tuple(SubtaskSnapshot("v", i, False, (StoredOperator("u", None, (bound,)),)) for i in range(2))
    checkpoint = completed(5, snapshots=snapshots)
    assert [len(list(each.tables())) for each in restored(checkpoint, "u", 2)] == [1, 1]
    with pytest.raises(RestoreError, match=r"'channel' of uid 'u'.*parallelism 2.*parallelism 3"):
        restored(checkpoint, "u", 3)


def test_state_without_an_operator_is_refused_unless_allowed() -> None:
    checkpoint = stored("gone", {"splits": [at(0)], "own": None}, {"splits": []}, keyed=True)
    with pytest.raises(RestoreError, match=r"uid 'gone': n, splits\nThis program has: new\.") as caught:
        restored(checkpoint, "new", 2)
    assert "allow_non_restored_state=True" in str(caught.value)
    assert [each.operators for each in restored(checkpoint, "new", 2, allow_non_restored_state=True)] == [(), ()]


def test_an_operator_that_kept_nothing_may_go() -> None:
    restored(stored("gone", None, {"splits": [], "committables": []}), "new", 2)


def test_another_max_parallelism_is_refused_with_both_sides() -> None:
    with pytest.raises(
        RestoreError, match=r"max_parallelism=128, this program has max_parallelism=256.*Set max_parallelism=128"
    ):
        plan_restore(stored("u", None), [shape("v", ("u",), 1)], 256, {})


def test_chains_may_be_cut_differently() -> None:
    operators = (StoredOperator("a", {"own": 1}, ()), StoredOperator("b", {"own": 2}, ()))
    checkpoint = completed(5, snapshots=(SubtaskSnapshot("a-b", 0, True, operators),))
    plan = plan_restore(checkpoint, [shape("a", ("a",), 1), shape("b", ("b", "new"), 1)], 128, {})
    assert {str(id): [op.inline for op in each.operators] for id, each in plan.items()} == {
        "a[0]": [({"own": 1},)],
        "b[0]": [({"own": 2},)],
    }
    assert all(each.finished for each in plan.values())


def test_a_finished_subtask_restores_as_finished() -> None:
    assert [each.finished for each in restored(stored("u", None, None, finished=(1,)), "u", 2)] == [False, True]


def test_on_rescale_a_vertex_is_finished_only_if_all_of_it_was() -> None:
    assert [each.finished for each in restored(stored("u", None, None, finished=(1,)), "u", 3)] == [False] * 3
    assert [each.finished for each in restored(stored("u", None, None, finished=(0, 1)), "u", 1)] == [True]


def test_a_new_vertex_is_not_finished() -> None:
    plan = plan_restore(stored("u", None, finished=(0,)), [shape("x", ("x",), 1)], 128, {})
    assert not plan[SubtaskId("x", 0)].finished


def test_what_a_subtask_restores_survives_json() -> None:
    for each in restored(stored("u", {"splits": [at(0)]}, {"splits": [at(1)]}, keyed=True), "u", 3):
        assert subtask_restore_from_json(json.loads(json.dumps(each.to_json()))) == each
