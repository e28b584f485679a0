"""Word count over text files, the "hello" of streams.

    cutwater run examples/word_count.py
    INPUT='books/*.txt' OUTPUT=counts cutwater run examples/word_count.py

Counts are running: each batch gives one updated row for each of its words, and the last row of a word is its count.
Kill it, run it again, and it goes on from its latest checkpoint.
"""

import os
import re
from pathlib import Path

import cutwater as cw

INPUT = os.environ.get("INPUT", str(Path(__file__).parent.parent / "README.md"))
OUTPUT = os.environ.get("OUTPUT", "output/word_count")


def pipeline(env):
    lines = env.read(cw.text_files(INPUT), uid="lines")
    words = lines.flat_map(lambda line: [(word,) for word in re.findall(r"\w+", line.value.lower())], "word string")
    words.key_by("word").agg(n=cw.count()).uid("counts").write(cw.json_sink(OUTPUT), uid="out")
