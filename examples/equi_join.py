"""Two inputs, joined where they are equal: the example by which Flink's documents explain barriers that jump the queue.

    python examples/equi_join.py

An operator joins two streams of numbers. 1 has been in both and is on its way out when a checkpoint begins. The barrier
of the first input stands behind the 2, that of the second behind 2, 9 and 7:

    input1:  1 2 | 9 4                   output:  1
    input2:  1 2 9 7 | 5

Aligned, the operator waits with the 9 of the first input, which comes behind a barrier, until the other barrier is there
too: its state then holds 1, 2 of one side and 1, 2, 9, 7 of the other, and nothing is under way.

Cut unaligned, the same checkpoint may hold less state, and beside it what the barriers passed: the 2 of input1, the 1 of
output, and 2, 9, 7 of input2.

Here everything dies behind the barriers, again and again with another order of events. Either way 1, 2 and 9 come out, each of
them once.
"""

import random

import cutwater as cw
from cutwater.testing import ADVANCE, FAIL, TRIGGER, run, script

INPUT1 = ([1, 2], [9, 4])
INPUT2 = ([1, 2, 9, 7], [5])
"""What stands before the barrier of each input, and what behind it."""


def pipeline(env):
    """In production the inputs would be topics or files; here a script stands for each."""
    first, second = (env.read(cw.from_rows([], "number long"), uid=uid) for uid in ("input1", "input2"))
    joined = first.key_by("number").join(second.key_by("number")).uid("join")
    joined.rebalance().collect("output")  # in subtasks of its own: there is a way between


def run_and_fail(seed, parallelism=1, *, unaligned=False):
    """The output of a run that began a checkpoint between the two parts of its input, and died soon after.

    ``seed`` decides who comes first wherever two things could happen: a number of one input, or the barrier of the other.
    """
    order = random.Random(seed)
    by_hand = cw.Checkpointing("1 day", storage=cw.memory_storage("10MB"), unaligned=unaligned)  # the script says when
    env = cw.Environment(parallelism=parallelism, checkpointing=by_hand)
    inputs = {
        "input1": script(INPUT1[0], TRIGGER, INPUT1[1], FAIL),
        "input2": script(INPUT2[0], ADVANCE("1s"), INPUT2[1]),  # quiet until the failure is over
    }
    return sorted(row.number for row in run(pipeline, inputs, environment=env, choose=order.randrange)["output"])


def main():
    for seed in range(5):
        print(f"order of events {seed}: aligned {run_and_fail(seed)}, unaligned {run_and_fail(seed, unaligned=True)}")


if __name__ == "__main__":
    main()
