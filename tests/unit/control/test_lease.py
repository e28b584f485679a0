"""The lease: counted from the question, lost only after a last one."""

from cutwater.control.lease import Lease


def test_a_lease_counts_from_the_question_not_from_the_answer() -> None:
    lease = Lease(10.0, now=100.0)
    lease.asked(101.0)
    lease.granted(101.0)
    assert lease.deadline == 111.0
    assert lease.holds(110.9)
    assert not lease.holds(111.0)


def test_nothing_is_held_before_the_drivers_first_word() -> None:
    lease = Lease(10.0, now=100.0)
    assert not lease.holds(100.0)
    lease.asked(100.0)
    lease.granted(100.0)
    assert lease.holds(100.0)


def test_questions_are_asked_every_second_and_more_often_for_short_leases() -> None:
    for length, gap in ((10.0, 1.0), (1.0, 0.2)):
        lease = Lease(length, now=100.0)
        assert lease.ask_due() == 100.0
        lease.asked(100.0)
        assert lease.ask_due() == 100.0 + gap


def test_silence_ends_the_lease_at_its_deadline_after_one_last_question() -> None:
    lease = Lease(10.0, now=0.0)
    questions = []
    while (due := lease.ask_due()) is not None:
        assert not lease.is_lost(due)
        lease.asked(due)
        questions.append(due)
    assert questions == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0]
    assert lease.lost_at() == 10.0
    assert not lease.is_lost(9.99)
    assert lease.is_lost(10.0)


def test_a_starved_process_asks_once_more_before_it_gives_up() -> None:
    lease = Lease(10.0, now=0.0)
    lease.asked(0.0)
    lease.granted(0.0)
    woken = 25.0
    assert not lease.holds(woken)
    assert not lease.is_lost(woken)
    assert lease.ask_due() == 1.0
    lease.asked(woken)
    assert lease.ask_due() is None
    assert lease.lost_at() == 26.0
    lease.granted(woken)
    assert lease.holds(woken)
    assert lease.lost_at() is None


def test_grants_that_lay_in_the_socket_of_a_frozen_process_do_not_prolong_its_lease() -> None:
    lease = Lease(10.0, now=0.0)
    for asked_at in (0.0, 1.0, 2.0):
        lease.asked(asked_at)
    woken = 60.0
    for asked_at in (0.0, 1.0, 2.0):
        lease.granted(asked_at)
    assert lease.deadline == 12.0
    assert not lease.holds(woken)


def test_an_older_answer_does_not_shorten_the_lease() -> None:
    lease = Lease(10.0, now=0.0)
    lease.granted(5.0)
    lease.granted(3.0)
    assert lease.deadline == 15.0
