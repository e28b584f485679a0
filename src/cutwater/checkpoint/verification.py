"""Whether what is stored is still what was written."""

from cutwater.checkpoint.checksum import new_checksum
from cutwater.checkpoint.completed import CompletedCheckpoint, decode_metadata
from cutwater.checkpoint.file_storage import FileStorage
from cutwater.checkpoint.layout import METADATA_FILE, metadata_file
from cutwater.checkpoint.storage import CheckpointStorage
from cutwater.checkpoint.storage_url import folder_of
from cutwater.errors import DamagedCheckpoint, RestoreError
from cutwater.state.stored import Section, StoredFile

_READ_AT_ONCE = 8 << 20


def verify(storage: CheckpointStorage, checkpoint: CompletedCheckpoint) -> None:
    """Read every file of the checkpoint; raises DamagedCheckpoint naming the file and both checksums or sizes."""
    for file in checkpoint.files():
        verify_file(storage, file)


def verify_file(storage: CheckpointStorage, file: StoredFile) -> None:
    try:
        size = storage.size(file.file)
        if size != file.size:
            raise DamagedCheckpoint(f"{file.file} in {storage.url} is damaged: {size} bytes, written were {file.size}.")
        digest = new_checksum()
        for offset in range(0, size, _READ_AT_ONCE):
            digest.update(storage.read(file.file, offset, _READ_AT_ONCE))
    except FileNotFoundError:
        raise missing_file(storage, file) from None
    if digest.hexdigest() != file.checksum:
        raise wrong_checksum(storage.url, file, digest.hexdigest())


def missing_file(storage: CheckpointStorage, file: StoredFile) -> DamagedCheckpoint:
    whole = " The checkpoint shares it with others: copy the whole folder of the job, or take a savepoint."
    return DamagedCheckpoint(
        f"{file.file} is missing in {storage.url}; written were {file.size} bytes with checksum {file.checksum}."
        f"{whole if file.shared else ''}"
    )


def wrong_checksum(place: str, file: StoredFile, found: str) -> DamagedCheckpoint:
    return DamagedCheckpoint(
        f"{file.file} in {place} is damaged: it has checksum {found}, written was {file.checksum}."
    )


def wrong_section(place: str, file: StoredFile, section: Section, found: str) -> DamagedCheckpoint:
    return DamagedCheckpoint(
        f"{file.file} in {place} is damaged: its {section.size} bytes from {section.offset} on have checksum {found}, "
        f"written was {section.checksum}."
    )


def read_metadata(storage: CheckpointStorage, folder: str) -> CompletedCheckpoint:
    """Raises FileNotFoundError, DamagedCheckpoint, RestoreError."""
    name = metadata_file(folder)
    return decode_metadata(f"{name} in {storage.url}", storage.read(name))


def open_checkpoint(path: str) -> tuple[CheckpointStorage, CompletedCheckpoint]:
    """A checkpoint or savepoint by its folder, wherever it was moved to; names are relative to the storage returned.

    One that shares files with others is found together with them: they stand beside its folder.

    Raises RestoreError if none stands there, DamagedCheckpoint if its metadata is damaged.
    """
    folder = folder_of(path)
    if folder.endswith(f"/{METADATA_FILE}"):
        folder = folder.removesuffix(f"/{METADATA_FILE}")
    storage = FileStorage(folder)
    try:
        checkpoint = read_metadata(storage, "")
    except FileNotFoundError:
        raise RestoreError(
            f"{path!r} holds no completed checkpoint: there is no {METADATA_FILE} in {folder}. "
            f"Pass the folder of a checkpoint (.../chk-12) or of a savepoint."
        ) from None
    if not checkpoint.shared_files():
        return storage, checkpoint.in_folder("")
    parent, _, own = folder.rpartition("/")
    return FileStorage(parent or "/"), checkpoint.in_folder(own)
