"""Workers that store their parts of one checkpoint at the same moment."""

import multiprocessing
from pathlib import Path

from cutwater.checkpoint.file_storage import FileStorage

ROUNDS = 150
WRITERS = 4


def _write_and_delete(root: str, writer: int, together: object, failures: object) -> None:
    storage = FileStorage(root)
    for number in range(ROUNDS):
        together.wait(60)  # type: ignore[attr-defined]
        try:
            storage.put(f"job/chk-{number}/part-{writer}", b"state")
            if writer == 0:
                storage.delete([f"job/chk-{number - 1}/part-{each}" for each in range(WRITERS)])
        except Exception as error:
            failures.put(f"round {number}: {error}")  # type: ignore[attr-defined]


def test_a_folder_that_several_workers_make_at_once_is_in_nobodys_way(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    together, failures = context.Barrier(WRITERS), context.SimpleQueue()
    workers = [
        context.Process(target=_write_and_delete, args=(str(tmp_path), writer, together, failures))
        for writer in range(WRITERS)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(120)
        assert worker.exitcode == 0
    assert failures.empty(), failures.get()
    assert len(list(FileStorage(str(tmp_path)).list(f"job/chk-{ROUNDS - 1}/"))) == WRITERS
