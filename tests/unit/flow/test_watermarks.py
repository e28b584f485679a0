"""The watermark of several inputs is that of the slowest which is not idle."""

from hypothesis import given
from hypothesis import strategies as st

from cutwater.flow.watermarks import MAX_WATERMARK, MIN_WATERMARK, CombinedWatermark

EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("advance"), st.integers(0, 2), st.integers(0, 20)),
        st.tuples(st.just("rest"), st.integers(0, 2), st.just(0)),
    ),
    max_size=30,
)


@given(EVENTS)
def test_it_never_goes_back_and_never_passes_an_active_input(events: list[tuple[str, int, int]]) -> None:
    combined = CombinedWatermark(range(3))
    reached = dict.fromkeys(range(3), MIN_WATERMARK)
    idle: set[int] = set()
    allowed = MIN_WATERMARK
    for kind, each, time in events:
        if kind == "advance":
            combined.advance(each, time)
            reached[each] = max(reached[each], time)
            idle.discard(each)
        else:
            combined.rest(each)
            idle.add(each)
        active = [reached[each] for each in reached if each not in idle]
        allowed = max(allowed, min(active) if active else max(reached.values()))
        assert combined.time == allowed
        assert combined.idle == (not active)


def test_an_idle_input_holds_nobody_back_and_does_not_pull_back_when_it_wakes() -> None:
    combined = CombinedWatermark("ab")
    combined.advance("a", 10)
    assert combined.time == MIN_WATERMARK
    combined.rest("b")
    assert combined.time == 10
    combined.advance("b", 3)
    assert combined.time == 10
    combined.advance("a", 20)
    assert combined.time == 10
    combined.advance("b", 15)
    assert combined.time == 15


def test_a_new_input_holds_the_others_back_and_one_that_ended_does_not() -> None:
    combined = CombinedWatermark("a")
    combined.advance("a", 10)
    combined.add({"b": 5, "c": 7})
    combined.advance("a", 20)
    assert combined.time == 10
    combined.remove("b")
    combined.remove("c")
    assert combined.time == 20
    combined.remove("a")
    assert combined.idle and combined.time == 20


def test_what_an_input_says_that_is_none_of_its_own_changes_nothing() -> None:
    combined = CombinedWatermark("a")
    combined.advance("a", 10)
    combined.advance("x", 5)
    combined.rest("x")
    combined.remove("x")
    assert combined.time == 10 and not combined.idle
    combined.remove("a")
    combined.advance("a", 20)
    assert combined.time == 10 and combined.idle


def test_an_input_that_ended_does_not_carry_idle_ones_to_the_end_of_time() -> None:
    combined = CombinedWatermark("ab")
    combined.advance("b", 5)
    combined.advance("a", MAX_WATERMARK)
    assert combined.time == 5
    combined.rest("b")
    combined.rest("a")
    assert combined.idle and combined.time == 5
