"""What the URL of a Spark master says: whether Spark can read it at all, and where its tasks run."""

import re
import socket
from enum import Enum
from typing import Final

from cutwater.errors import ConfigError

FORMS: Final = "local[N], local-cluster[EXECUTORS,CORES,MEMORY], spark://HOST:PORT, yarn, k8s://HOST:PORT"

_LOCAL = re.compile(r"local(\[([1-9][0-9]*|\*)(\s*,\s*(?P<failures>[0-9]+))?\])?")
_LOCAL_CLUSTER = re.compile(r"local-cluster\[\s*[0-9]+\s*,\s*[0-9]+\s*,\s*[0-9]+\s*\]")
_STANDALONE = re.compile(r"spark://(?P<hosts>[^,/\s]+:[0-9]+(,[^,/\s]+:[0-9]+)*)")
_ELSEWHERE = re.compile(r"yarn|k8s://\S+")

_CONNECT_SECONDS = 5.0


class Tasks(Enum):
    """Where a master's tasks run."""

    IN_THE_DRIVER = "threads of the driver's own JVM: their number is the master's to say"
    ON_THIS_MACHINE = "executors of a cluster that lives and dies with the driver"
    ON_A_CLUSTER = "executors wherever the cluster has them"


def tasks_of(master: object) -> Tasks:
    """Of a session's master, or of one to be."""
    if _LOCAL.fullmatch(str(master)):
        return Tasks.IN_THE_DRIVER
    return Tasks.ON_THIS_MACHINE if _LOCAL_CLUSTER.fullmatch(str(master)) else Tasks.ON_A_CLUSTER


def repeats_tasks(master: object) -> bool:
    """``local[N,F]`` tries a task F times, whatever spark.task.maxFailures says."""
    found = _LOCAL.fullmatch(str(master))
    return found is not None and found["failures"] is not None and int(found["failures"]) != 1


def checked_master(master: object) -> str:
    """Raises ConfigError for what Spark could not read: its own refusal is the death of a JVM."""
    forms = (_LOCAL, _LOCAL_CLUSTER, _STANDALONE, _ELSEWHERE)
    if not isinstance(master, str) or not any(form.fullmatch(master) for form in forms):
        raise ConfigError(
            f"master={master!r}: a master's URL is needed, like 'spark://host:7077'. The forms are {FORMS}."
        )
    return master


def refuse_silent(master: str) -> None:
    """Raises ConfigError if nobody listens at a standalone master: Spark would try for a minute and end in a stack trace."""
    standalone = _STANDALONE.fullmatch(master)
    if standalone is None:
        return
    problems = []
    for address in standalone["hosts"].split(","):
        host, _, port = address.rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT_SECONDS).close()
            return
        except (OSError, OverflowError) as error:
            problems.append(f"{address}: {error}")
    raise ConfigError(
        f"master={master!r}: nobody listens there ({'; '.join(problems)}). Start the master or correct the address."
    )
