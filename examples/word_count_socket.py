"""Word count of lines typed into a socket.

    nc -lk 9999                                       # in one terminal: type words
    cutwater run examples/word_count_socket.py        # in another: see their counts

A socket cannot be asked for a line twice. Exactly once is therefore refused for it, unless the loss is accepted: after a
failure the counts go back to the latest checkpoint, and the lines typed since then are gone.
"""

import os
import re

import cutwater as cw

HOST = os.environ.get("HOST", "localhost")
PORT = int(os.environ.get("PORT", "9999"))


def environment():
    return cw.Environment(checkpointing=cw.Checkpointing("1s", storage="file:checkpoints"))


def pipeline(env):
    lines = env.read(cw.socket(HOST, PORT, allow_data_loss=True), uid="lines")
    words = lines.flat_map(lambda line: [(word,) for word in re.findall(r"\w+", line.value.lower())], "word string")
    words.key_by("word").agg(n=cw.count()).uid("counts").print()
