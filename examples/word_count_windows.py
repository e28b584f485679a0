"""Words of a socket, counted in windows of five seconds: the word count that Flink's documents begin with.

    nc -lk 9999                                       # in one terminal: type words
    cutwater run examples/word_count_windows.py       # in another: every five seconds, the counts of what was typed

`environment()` is the whole configuration that stands beside it there, each setting under its name here: docs/seeds.md has
the table.
"""

import os
import re

import cutwater as cw

HOST = os.environ.get("HOST", "localhost")
PORT = int(os.environ.get("PORT", "9999"))


def environment():
    env = cw.Environment(
        # new FsStateBackend("file:...", false): two things in one there. The second of them is `storage` below.
        state_backend=cw.Memory(asynchronous=False),
    )
    env.enable_checkpointing(  # enableCheckpointing(1000)
        "1s",
        storage="file:checkpoints",
        mode="exactly_once",  # setCheckpointingMode(EXACTLY_ONCE)
        min_pause="500ms",  # setMinPauseBetweenCheckpoints(500)
        timeout="1 min",  # setCheckpointTimeout(60000)
        tolerable_failures=1_000_000,  # setFailOnCheckpointingErrors(false): a failed checkpoint never fails the job
        max_concurrent=1,  # setMaxConcurrentCheckpoints(1)
        unaligned=True,  # enableUnalignedCheckpoints()
    )
    return env


def pipeline(env):
    # A socket cannot be asked for a line twice: exactly once for what was read needs this word on what is lost.
    text = env.read(cw.socket(HOST, PORT, allow_data_loss=True), uid="text")
    counts = (
        text.flat_map(lambda line: [(word,) for word in re.split(r"\W+", line.value.lower()) if word], "word string")
        .map(lambda row: (row.word, 1), "word string, n long")
        .key_by("word")
        .window(cw.tumbling("5s"), time="processing")
        .agg(n=cw.sum("n"))
        .uid("counts")
    )
    counts.print()
