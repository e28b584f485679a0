import os

from hypothesis import given
from hypothesis import strategies as st

from cutwater.checkpoint.layout import JobLayout, number_of, safe_name
from cutwater.flow.ids import Attempt, CheckpointId, SubtaskId

TEXTS = st.text(alphabet=st.sampled_from("aB1./~%+-_ é\0*"), max_size=80)


@given(TEXTS, TEXTS)
def test_different_names_give_different_file_names(one: str, other: str) -> None:
    assert (safe_name(one) == safe_name(other)) == (one == other)


@given(st.text(max_size=300))
def test_any_name_becomes_a_safe_file_name(name: str) -> None:
    safe = safe_name(name)
    assert safe not in ("", ".", "..")
    assert not safe.startswith(".")
    assert not set(safe) & set("/+\\\0 *?")
    assert len(os.fsencode(safe)) <= 56


@given(st.lists(st.tuples(TEXTS, st.integers(0, 12), st.integers(1, 12), TEXTS, TEXTS), min_size=2, max_size=2))
def test_different_tables_never_share_a_file(parts: list[tuple[str, int, int, str, str]]) -> None:
    files = [JobLayout("j").files_of(SubtaskId(v, i), Attempt(a)) for v, i, a, _, _ in parts]
    chosen = [(own, part[3], part[4]) for own, part in zip(files, parts, strict=True)]
    for one, other in (
        [own.own(CheckpointId(7), uid, state) for own, uid, state in chosen],
        [own.sharable(CheckpointId(7), uid, state) for own, uid, state in chosen],
        [own.sharable(CheckpointId(7), uid, state, "000123.sst") for own, uid, state in chosen],
    ):
        assert (one == other) == (parts[0] == parts[1])
        assert len(os.fsencode(one.rpartition("/")[2])) < 255


def test_a_name_that_looks_like_a_shortened_one_is_not_taken_for_it() -> None:
    long = "x" * 100
    assert safe_name(safe_name(long)) != safe_name(long)


def test_readable_names_stay_readable() -> None:
    assert safe_name("word-count_2.v1") == "word-count_2.v1"
    files = JobLayout("wc").files_of(SubtaskId("counts", 1), Attempt(2))
    assert files.own(CheckpointId(3), "counts", "sum") == "wc/chk-3/counts+1+a2+counts+sum.arrow"
    assert files.sharable(CheckpointId(3), "counts", "sum") == "wc/shared/3+counts+1+a2+counts+sum.arrow"
    assert files.sharable(CheckpointId(3), "c", "s", "1.sst") == "wc/shared/3+counts+1+a2+c+s+1.sst"


def test_a_shared_file_tells_which_checkpoint_wrote_it() -> None:
    layout = JobLayout("wc")
    file = layout.files_of(SubtaskId("3", 1), Attempt(2)).sharable(CheckpointId(12), "u", "s")
    assert layout.writer_of(file) == 12
    assert file.startswith(layout.shared_of(CheckpointId(12)))
    assert not file.startswith(layout.shared_of(CheckpointId(1)))
    assert layout.writer_of("wc/shared/readme+x") is None
    assert layout.checkpoint_of(file) is None


def test_a_checkpoint_is_found_by_its_files() -> None:
    layout = JobLayout("a/b")
    assert layout.checkpoint_of(layout.metadata(CheckpointId(12))) == 12
    assert layout.checkpoint_of(JobLayout("b").metadata(CheckpointId(12))) is None
    assert layout.checkpoint_of("a%2Fb/chk-x/metadata.json") is None
    assert layout.checkpoint_of("a%2Fb/chk-12") is None


def test_collected_parts_sort_by_checkpoint_then_subtask() -> None:
    keys = [(2, 0), (2, 10), (10, 0), (10, 2), (100, 0)]
    names = [JobLayout("j").collected_part("i", "u", CheckpointId(id), index) for id, index in keys]
    assert names == sorted(names)


def test_markers_are_read_back_as_numbers() -> None:
    layout = JobLayout("j")
    assert number_of(layout.attempt(3)) == 3
    assert number_of(layout.attempt_start(3)) is None
    assert number_of(layout.id_marker(12)) == 12
    assert number_of(layout.commit(12)) == 12
