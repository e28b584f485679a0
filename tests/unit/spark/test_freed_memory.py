import subprocess
import sys

import pytest

CHURN = """
import resource
import sys

import numpy as np

from cutwater.spark.freed_memory import keep_freed_memory

if sys.argv[1] == "kept":
    keep_freed_memory()


def churn(rounds):
    for _ in range(rounds):
        arrays = [np.ones(size << 20, np.uint8) for size in [1] * 20]
        del arrays


def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


churn(5)
before = faults()
churn(50)
print(faults() - before)
"""


def faults(how: str) -> int:
    run = subprocess.run([sys.executable, "-c", CHURN, how], capture_output=True, text=True, check=True, timeout=60)
    return int(run.stdout)


@pytest.mark.skipif(sys.platform != "linux", reason="counts the page faults of Linux")
def test_memory_that_is_freed_and_asked_for_again_is_not_handed_back_to_the_kernel() -> None:
    pages_of_a_round = 20 * 256
    assert faults("kept") < 2 * pages_of_a_round
    assert faults("as usual") > 25 * pages_of_a_round
