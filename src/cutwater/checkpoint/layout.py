"""Every name in the checkpoint storage is formatted here and nowhere else.

    <job>/lock                                      held by the living driver (local files only)
    <job>/attempts/00000003.json                    claims attempt 3; fences every lower one
    <job>/attempts/00000003.start.json              what attempt 3 starts from: incarnation, accepted checkpoints
    <job>/attempts/00000003.completed.json          attempt 3 has completed a checkpoint
    <job>/ids/12                                    checkpoint id 12 is taken, for ever
    <job>/chk-12/metadata.json                      checkpoint 12 is complete
    <job>/chk-12/<vertex>+<index>+a3+<uid>+<state>.arrow
    <job>/shared/12+<vertex>+<index>+a3+<uid>+<state>.arrow         written for checkpoint 12, referenced by later ones too
    <job>/shared/12+claimed+0                       a file of a checkpoint that was restored by its path, taken over
    <job>/shared/12+metadata.json                   that checkpoint, with the names that its files have here
    <job>/commits/12.json                           output of checkpoint 12 may be visible outside
    <job>/ended/<incarnation>.json                  how the last run of that incarnation ended
    <job>/collected/<incarnation>/<uid>/000000000012-00000.arrow
    <job>/collected/<incarnation>/<uid>/a00000003-00000.arrow       without checkpoints: counts if attempt 3 finishes
    <job>/sources/<incarnation>/00000003.json       at most once: where attempt 3 began to read each source
    <job>/reservations/<incarnation>/<uid>+<index>+a3.json

``+`` separates parts of a file name: ``safe_name`` never lets one through, so different parts never give the same name.
"""

import hashlib
import re
from dataclasses import dataclass
from urllib.parse import quote

from cutwater.flow.ids import Attempt, CheckpointId, SubtaskId

METADATA_FILE = "metadata.json"
SHARED_FOLDER = "shared"
_LONGEST_PART = 56
_CHECKPOINT_FOLDER = re.compile(r"chk-([1-9]\d*)")


def safe_name(name: str) -> str:
    """A file name for any text: readable where it can be, and different texts give different names.

    ``%XX`` stands for whatever is unsafe; ``~`` occurs only before the digest of a text that was too long.
    """
    encoded = quote(name, safe="").replace("~", "%7E")
    if encoded.startswith("."):
        encoded = "%2E" + encoded[1:]
    if 0 < len(encoded) <= _LONGEST_PART:
        return encoded
    return encoded[:24] + "~" + hashlib.sha256(name.encode()).hexdigest()[:31]


@dataclass(frozen=True, slots=True)
class SubtaskFiles:
    """Where a subtask stores its tables. The attempt is part of each name, so that a zombie never writes over its successor.

    ``checkpoints`` and ``shared`` are those of the job's layout.
    """

    checkpoints: str
    shared: str
    subtask: SubtaskId
    attempt: Attempt

    def own(self, checkpoint: CheckpointId, uid: str, state: str) -> str:
        """In the folder of the checkpoint, and deleted with it."""
        return f"{self.checkpoints}{checkpoint}/{self._table(uid, state)}.arrow"

    def sharable(self, checkpoint: CheckpointId, uid: str, state: str, name: str = "") -> str:
        """Beside the folders of the checkpoints; ``name`` where a state has several files."""
        end = f"+{safe_name(name)}" if name else ".arrow"
        return f"{self.shared}{checkpoint}+{self._table(uid, state)}{end}"

    def _table(self, uid: str, state: str) -> str:
        subtask = f"{safe_name(self.subtask.vertex)}+{self.subtask.index}+a{self.attempt}"
        return f"{subtask}+{safe_name(uid)}+{safe_name(state)}"


def metadata_file(folder: str) -> str:
    """The metadata of the checkpoint in ``folder``; ``""`` is the root of a savepoint's own storage."""
    return f"{folder}/{METADATA_FILE}" if folder else METADATA_FILE


@dataclass(frozen=True, slots=True)
class JobLayout:
    """The names of one job."""

    job: str

    @property
    def folder(self) -> str:
        return safe_name(self.job)

    @property
    def lock(self) -> str:
        return f"{self.folder}/lock"

    @property
    def attempts(self) -> str:
        return f"{self.folder}/attempts/"

    def attempt(self, attempt: int) -> str:
        return f"{self.attempts}{attempt:08d}.json"

    def attempt_start(self, attempt: int) -> str:
        return f"{self.attempts}{attempt:08d}.start.json"

    def attempt_completed(self, attempt: int) -> str:
        return f"{self.attempts}{attempt:08d}.completed.json"

    @property
    def workers(self) -> str:
        return f"{self.folder}/workers.json"

    @property
    def ids(self) -> str:
        return f"{self.folder}/ids/"

    def id_marker(self, checkpoint: int) -> str:
        return f"{self.ids}{checkpoint}"

    @property
    def checkpoints(self) -> str:
        return f"{self.folder}/chk-"

    def checkpoint_folder(self, checkpoint: CheckpointId) -> str:
        return f"{self.checkpoints}{checkpoint}"

    def checkpoint_of(self, name: str) -> CheckpointId | None:
        """The checkpoint whose folder holds ``name``."""
        parts = name.split("/")
        found = _CHECKPOINT_FOLDER.fullmatch(parts[1]) if len(parts) > 2 and parts[0] == self.folder else None
        return CheckpointId(int(found[1])) if found else None

    def metadata(self, checkpoint: CheckpointId) -> str:
        return metadata_file(self.checkpoint_folder(checkpoint))

    @property
    def shared(self) -> str:
        return f"{self.folder}/{SHARED_FOLDER}/"

    def shared_of(self, checkpoint: CheckpointId) -> str:
        """Begins the name of each shared file that was written for this checkpoint."""
        return f"{self.shared}{checkpoint}+"

    def claimed(self, checkpoint: CheckpointId, number: int) -> str:
        """A file of a restored path that the job took over under the id ``checkpoint``."""
        return f"{self.shared_of(checkpoint)}claimed+{number}"

    def claimed_metadata(self, checkpoint: CheckpointId) -> str:
        """Of the restored path whose files the job took over under the id ``checkpoint``."""
        return f"{self.shared_of(checkpoint)}{METADATA_FILE}"

    def writer_of(self, name: str) -> CheckpointId | None:
        """The checkpoint that a shared file was written for."""
        number = name.removeprefix(self.shared).partition("+")[0]
        return CheckpointId(int(number)) if number.isascii() and number.isdigit() else None

    def files_of(self, subtask: SubtaskId, attempt: Attempt) -> SubtaskFiles:
        return SubtaskFiles(self.checkpoints, self.shared, subtask, attempt)

    @property
    def commits(self) -> str:
        return f"{self.folder}/commits/"

    def commit(self, checkpoint: int) -> str:
        return f"{self.commits}{checkpoint}.json"

    def ended(self, incarnation: str) -> str:
        return f"{self.folder}/ended/{safe_name(incarnation)}.json"

    def collected(self, incarnation: str, uid: str) -> str:
        return f"{self.folder}/collected/{safe_name(incarnation)}/{safe_name(uid)}/"

    def collected_part(self, incarnation: str, uid: str, checkpoint: CheckpointId, index: int) -> str:
        """Padded, so that names sort by (checkpoint, subtask)."""
        return f"{self.collected(incarnation, uid)}{checkpoint:012d}-{index:05d}.arrow"

    def collected_by(self, incarnation: str, uid: str, attempt: Attempt) -> str:
        """Begins the name of each part that an attempt without checkpoints collects."""
        return f"{self.collected(incarnation, uid)}a{attempt:08d}-"

    def collected_whole(self, incarnation: str, uid: str, attempt: Attempt, index: int) -> str:
        return f"{self.collected_by(incarnation, uid, attempt)}{index:05d}.arrow"

    def table(self, incarnation: str, uid: str) -> str:
        """Where a DataFrame that a job reads is written once per incarnation."""
        return f"{self.folder}/tables/{incarnation}/{safe_name(uid)}"

    def sources(self, incarnation: str) -> str:
        return f"{self.folder}/sources/{safe_name(incarnation)}/"

    def sources_of(self, incarnation: str, attempt: Attempt) -> str:
        """Padded, so that the latest is the last."""
        return f"{self.sources(incarnation)}{attempt:08d}.json"

    def reservations(self, incarnation: str) -> str:
        return f"{self.folder}/reservations/{safe_name(incarnation)}/"

    def reservation(self, incarnation: str, uid: str, index: int, attempt: Attempt) -> str:
        return f"{self.reservations(incarnation)}{safe_name(uid)}+{index}+a{attempt}.json"


def number_of(name: str) -> int | None:
    """The number that a marker's name stands for: ``attempts/00000003.json`` and ``ids/3`` are 3; else None."""
    stem = name.rsplit("/", 1)[-1].removesuffix(".json")
    return int(stem) if stem.isascii() and stem.isdigit() else None
