"""The root cause in what Spark says."""

from cutwater.spark.spark_errors import cause_in, why_canceled

FROM_A_WORKER = """
An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "worker.py", line 10, in main
    process()
  File "task.py", line 57, in __call__
    blueprint = unpack(self.packed)
{error}

	at org.apache.spark.api.python.BasePythonRunner.handlePythonException
Caused by: java.io.IOException: Stream closed
"""


def test_a_module_that_the_workers_lack_is_named_with_what_to_do() -> None:
    told = cause_in(FROM_A_WORKER.format(error="ModuleNotFoundError: No module named 'pricing'"))
    assert "no module 'pricing'" in told
    assert "addPyFile" in told


def test_the_exception_of_the_worker_stands_before_sparks_words_about_it() -> None:
    assert cause_in(FROM_A_WORKER.format(error="ValueError: 7 is no price")) == "ValueError: 7 is no price"


def test_without_a_traceback_sparks_first_line_is_the_cause() -> None:
    assert cause_in("\n  Job 3 was cancelled\n  at org.apache.spark") == "Job 3 was cancelled"
    assert cause_in("") == "no reason was given"


def test_a_job_that_was_canceled_with_all_others_says_who_does_that() -> None:
    told = why_canceled("[SPARK_JOB_CANCELLED] Job 0 cancelled as part of cancellation of all jobs SQLSTATE: XXKDA")
    assert told is not None and "Ctrl-C" in told and "job.cancel()" in told


def test_a_job_that_we_canceled_ourselves_is_not_blamed_on_anybody() -> None:
    assert why_canceled("[SPARK_JOB_CANCELLED] Job 0 cancelled part of cancelled job group cutwater-job-1") is None
