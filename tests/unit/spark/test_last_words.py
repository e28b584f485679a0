"""A failing subtask closes what it opened, and the driver hears of the failure whatever close does."""

import threading

from cutwater.spark.last_words import close_then_tell

DEADLINE_SECONDS = 10.0


def test_the_driver_is_told_when_everything_is_closed() -> None:
    said: list[str] = []
    close_then_tell(lambda: said.append("closed"), lambda: said.append("told"))
    assert said == ["closed", "told"]


def test_the_driver_is_told_once_although_close_does_not_return() -> None:
    told, closing = threading.Event(), threading.Event()
    said: list[str] = []

    def tell() -> None:
        said.append("told")
        told.set()

    failing = threading.Thread(target=lambda: close_then_tell(closing.wait, tell, seconds=0.01))
    failing.start()
    try:
        assert told.wait(DEADLINE_SECONDS)
        assert failing.is_alive(), "close still runs"
    finally:
        closing.set()
        failing.join(DEADLINE_SECONDS)
    assert said == ["told"]


def test_close_runs_on_the_thread_that_user_code_was_opened_on() -> None:
    ran_on: list[int] = []
    close_then_tell(lambda: ran_on.append(threading.get_ident()), lambda: None)
    assert ran_on == [threading.get_ident()]
