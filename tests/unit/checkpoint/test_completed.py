import hashlib
import json
from dataclasses import asdict, replace

import pytest

from cutwater.checkpoint.completed import (
    decode_metadata,
    encode_metadata,
    metrics_from_json,
    snapshot_from_json,
    to_json,
)
from cutwater.checkpoint.snapshot import EdgeName, InFlightEdge, StoredInFlight, StoredOperator, SubtaskSnapshot
from cutwater.errors import DamagedCheckpoint, RestoreError
from cutwater.state.stored import Form, StoredFile, StoredTable
from tests.unit.checkpoint.checkpoints import METRICS, completed

FILE = StoredFile("job/chk-7/v+0+a1+u+n.arrow", 100, "ab" * 32)
TABLE = StoredTable("n", (FILE,), 3, 0, 63)
SNAPSHOTS = (
    SubtaskSnapshot("v", 0, False, (StoredOperator("u", {"splits": [{"split": 1, "position": None}]}, (TABLE,)),)),
    SubtaskSnapshot("v", 1, True, ()),
)
CHECKPOINT = completed(7, snapshots=SNAPSHOTS)


def test_metadata_is_read_back_as_it_was_written() -> None:
    assert decode_metadata("m", encode_metadata(CHECKPOINT)) == CHECKPOINT


def test_metadata_is_plain_json_that_any_tool_reads() -> None:
    value = json.loads(encode_metadata(CHECKPOINT))["checkpoint"]
    assert (value["format"], value["id"], value["kind"]) == (4, 7, "checkpoint")
    assert value["subtasks"][1]["snapshot"]["finished"] is True


def test_a_changed_byte_anywhere_is_found() -> None:
    file = encode_metadata(CHECKPOINT)
    for at in range(len(file)):
        with pytest.raises(DamagedCheckpoint, match=r"job/metadata\.json is damaged"):
            decode_metadata("job/metadata.json", file[:at] + bytes([file[at] ^ 1]) + file[at + 1 :])


def test_a_file_cut_short_anywhere_is_found() -> None:
    file = encode_metadata(CHECKPOINT)
    for length in range(len(file)):
        with pytest.raises(DamagedCheckpoint):
            decode_metadata("m", file[:length])


def test_keys_that_json_turns_into_text_do_not_look_like_damage() -> None:
    operator = StoredOperator("u", {"own": {10: "a", 9: "b"}}, ())
    file = encode_metadata(completed(1, snapshots=(SubtaskSnapshot("v", 0, False, (operator,)),)))
    assert decode_metadata("m", file).subtasks[0].snapshot.operators[0].inline == {"own": {"10": "a", "9": "b"}}


def test_a_format_of_another_version_is_refused_by_name() -> None:

    content = b'{"format":99}'
    file = b'{"sha256": "' + hashlib.sha256(content).hexdigest().encode() + b'", "checkpoint": ' + content + b"}\n"
    with pytest.raises(RestoreError, match="m has format 99, this version of Cutwater reads formats 2 to 4"):
        decode_metadata("m", file)


@pytest.mark.parametrize("content", [b'{"format":4}', b'{"format":4,"id":"x"}', b'{"format":3}', b'{"format":2}'])
def test_what_lacks_something_is_damaged(content: bytes) -> None:
    file = b'{"sha256": "' + hashlib.sha256(content).hexdigest().encode() + b'", "checkpoint": ' + content + b"}\n"
    with pytest.raises(DamagedCheckpoint, match="m is no metadata that Cutwater wrote"):
        decode_metadata("m", file)


def test_what_a_subtask_acknowledges_survives_json() -> None:
    for snapshot in SNAPSHOTS:
        assert snapshot_from_json(json.loads(json.dumps(asdict(snapshot)))) == snapshot
    assert metrics_from_json(json.loads(json.dumps(asdict(METRICS)))) == METRICS


def test_a_moved_checkpoint_names_its_files_from_the_new_folder() -> None:
    moved = CHECKPOINT.in_folder("")
    assert [file.file for file in moved.files()] == ["v+0+a1+u+n.arrow"]
    assert moved.in_folder("job/chk-7") == CHECKPOINT
    assert CHECKPOINT.size == 100


def test_only_listed_committables_count_as_output() -> None:
    def with_inline(inline: object) -> bool:
        operator = StoredOperator("u", inline, ())
        return completed(1, snapshots=(SubtaskSnapshot("v", 0, False, (operator,)),)).has_committables()

    assert with_inline({"committables": ["a"]})
    assert not with_inline({"committables": []})
    assert not with_inline(None)


def test_a_checkpoint_of_the_format_before_has_nothing_in_flight() -> None:
    value = to_json(CHECKPOINT)
    value["format"] = 3
    for record in value["subtasks"]:
        del record["snapshot"]["in_flight"]
        del record["metrics"]["unaligned"]
    content = json.dumps(value).encode()
    file = b'{"sha256": "' + hashlib.sha256(content).hexdigest().encode() + b'", "checkpoint": ' + content + b"}\n"
    assert decode_metadata("m", file) == CHECKPOINT


def test_rows_in_flight_are_part_of_the_checkpoint_and_move_with_it() -> None:
    rows = StoredFile("job/chk-7/v+0+a1+v+in-flight.arrow", 50, "ef" * 32)
    edge = InFlightEdge(EdgeName("src", None, "v", 0), "k: int64", "key group", ("k",))
    in_flight = StoredInFlight((edge,), (2,), StoredTable("in-flight", (rows,), 2, 0, -1))
    checkpoint = completed(7, snapshots=(replace(SNAPSHOTS[0], in_flight=in_flight),))
    assert decode_metadata("m", encode_metadata(checkpoint)) == checkpoint
    assert checkpoint.size == 150
    assert [file.file for file in checkpoint.in_folder("copy").files()][1] == "copy/v+0+a1+v+in-flight.arrow"


def test_a_checkpoint_of_format_two_is_still_read() -> None:
    value = to_json(CHECKPOINT)
    value["format"] = 2
    for record in value["subtasks"]:
        del record["metrics"]["written_bytes"]
        for operator in record["snapshot"]["operators"]:
            operator["tables"] = [
                {"state": "n", "file": FILE.file, "rows": 3, "size": 100, "checksum": FILE.checksum,
                 "first_key_group": 0, "last_key_group": 63}
            ]  # fmt: skip
    content = json.dumps(value).encode()
    file = b'{"sha256": "' + hashlib.sha256(content).hexdigest().encode() + b'", "checkpoint": ' + content + b"}\n"
    assert decode_metadata("m", file) == CHECKPOINT


def test_shared_files_stand_beside_a_moved_checkpoint_and_count_once() -> None:
    shared = StoredFile("job/shared/5+v+0+a1+u+n.arrow", 40, "cd" * 32, shared=True)
    tables = tuple(StoredTable(state, (shared, FILE), 3, 0, 63, Form.CHANGES) for state in "nm")
    snapshot = SubtaskSnapshot("v", 0, False, (StoredOperator("u", None, tables),))
    checkpoint = completed(7, snapshots=(snapshot,))
    assert decode_metadata("m", encode_metadata(checkpoint)) == checkpoint
    assert (checkpoint.size, checkpoint.shared_files()) == (140, {shared.file})
    moved = checkpoint.in_folder("copy")
    assert [file.file for file in moved.files()] == ["shared/5+v+0+a1+u+n.arrow", "copy/v+0+a1+u+n.arrow"]
    assert moved.in_folder("job/chk-7") == checkpoint
