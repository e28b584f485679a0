"""Every error that Cutwater raises on purpose.

    CutwaterError
    ├── ConfigError            a wrong argument or setting, found before anything starts
    │   ├── SchemaError        a schema that cannot be read, a column that does not exist
    │   └── PlanError          a pipeline that cannot run as it stands (slots, session, duplicate uids)
    ├── StorageError           the checkpoint storage refused or lost something
    │   ├── StorageInUse       another living driver owns this folder
    │   ├── TakenOver          another driver took the job over while this one ran: this one has to end
    │   ├── UncertainWrite     a write failed so late that the file may or may not be stored
    │   └── DamagedCheckpoint  a stored file does not match its checksum
    ├── RestoreError           the stored state does not fit this program
    ├── ControlError           the control channel between driver and subtasks broke
    ├── CommitLost             prepared output is gone for good: a sink says so, and the job fails without a restart
    ├── DataError              a record that does not fit, at run time
    ├── UserCodeError          the user's function raised; says on which line and for which row
    ├── JobFailed              the job ended in failure; the first line is the root cause
    └── JobStillRunning        ``job.wait(timeout)`` waited long enough; a TimeoutError too

A message names what was wrong, where, and what to do.
"""


class CutwaterError(Exception):
    """The root of the tree: ``except cw.CutwaterError`` catches whatever we raise on purpose."""


class ConfigError(CutwaterError):
    """A wrong argument: names the argument, the value and what is allowed."""


class SchemaError(ConfigError):
    """A schema that cannot be read, or a column that is not there."""


class PlanError(ConfigError):
    """A pipeline that cannot run as it stands, or a session it cannot run on."""


class StorageError(CutwaterError):
    """The checkpoint storage failed."""


class StorageInUse(StorageError):
    """Another living driver holds this job's folder."""


class TakenOver(StorageError):
    """Another driver runs the job in this folder now: whoever gets this publishes nothing more, and does not try again."""


class UncertainWrite(StorageError):
    """It is unknown whether the file was stored: whoever gets this must not delete anything the file may refer to."""


class DamagedCheckpoint(StorageError):
    """A checkpoint's file is missing or does not match its checksum."""


class RestoreError(CutwaterError):
    """Stored state that does not fit the program: names the uid, the state and both sides."""


class ControlError(CutwaterError):
    """The control channel broke or said something it must not say."""


class CommitLost(CutwaterError):
    """A prepared transaction is gone and can never be committed: rows may be lost, and no retry can help.

    Raised by the ``commit`` of a sink that knows so. The job fails at once, whatever ``restart=`` allows; any other error of
    ``commit`` is taken for a passing one: it is tried again, then the job restarts.
    """


class DataError(CutwaterError):
    """A record that does not fit, at run time: names operator, column and value."""


class UserCodeError(CutwaterError):
    """The user's function raised: ``user_line`` is ``"file.py:12"``, the original is ``__cause__``."""

    def __init__(self, message: str, user_line: str | None = None) -> None:
        super().__init__(message)
        self.user_line = user_line


class JobStillRunning(CutwaterError, TimeoutError):
    """``job.wait(timeout)`` waited long enough; the job runs on."""


class JobFailed(CutwaterError):
    """The job ended in failure. The first line of the message is the root cause."""
