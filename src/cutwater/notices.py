"""What a person should know when a job starts: state that dies with the driver, promises that hold only just."""

from collections.abc import Mapping
from datetime import timedelta

from cutwater.config import Checkpointing, CheckpointMode, MemoryStorageSetting
from cutwater.connectors.sink import Sink, TwoPhaseCommitSink
from cutwater.connectors.source import Source
from cutwater.duration import parse_duration
from cutwater.errors import ConfigError

SCARCE = 0.8
"""The part of a transaction's life from which on a late commit is worth a warning (rule 44)."""


def start_notices(
    sources: Mapping[str, Source],
    sinks: Mapping[str, Sink],
    checkpointing: Checkpointing | None,
    restart_time: timedelta,
) -> tuple[str, ...]:
    """One sentence each. ConfigError when a prepared transaction would die before a restart could commit it."""
    if checkpointing is None:
        return ()
    told = []
    if isinstance(checkpointing.storage, MemoryStorageSetting):
        told.append("storage='memory': if the driver dies, the job's state is lost and it starts over.")
    if checkpointing.mode is CheckpointMode.AT_LEAST_ONCE:
        told += [
            f"mode='at_least_once': {source.describe()} (uid {uid!r}) cannot be read again, so what it sent since the last "
            "checkpoint is lost when the job fails. allow_data_loss=True says that this is meant."
            for uid, source in sources.items()
            if not source.replayable and not getattr(source, "allow_data_loss", False)
        ]
    for uid, sink in sinks.items():
        if isinstance(sink, TwoPhaseCommitSink) and sink.transaction_timeout is not None:
            notice = _lifetime(uid, sink, checkpointing.timeout, restart_time)
            told += [notice] if notice is not None else []
    return tuple(told)


def _lifetime(uid: str, sink: TwoPhaseCommitSink, checkpoint_timeout: timedelta, restart_time: timedelta) -> str | None:
    """A transaction is prepared at the cut and committed when the checkpoint completed, or after the restart behind it."""
    assert sink.transaction_timeout is not None
    lives = parse_duration(f"transaction_timeout of {sink.describe()} (uid {uid!r})", sink.transaction_timeout)
    needed = checkpoint_timeout + restart_time
    why = (
        f"{sink.describe()} (uid {uid!r}): a prepared transaction lives for {lives}, and a commit may come {needed} after it "
        f"(a checkpoint's timeout of {checkpoint_timeout} and up to {restart_time} for a restart)"
    )
    if needed > lives:
        raise ConfigError(
            f"{why}: output would be lost. Raise transaction_timeout, or lower Checkpointing(timeout=...), the restart delay "
            "or slot_timeout."
        )
    if needed >= lives * SCARCE:
        return f"{why}: that is more than {SCARCE:.0%} of its life."
    return None
