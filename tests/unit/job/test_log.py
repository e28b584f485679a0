from cutwater.job.log import JobLog


def test_a_reader_gets_each_line_once_and_misses_only_what_is_gone() -> None:
    log = JobLog(kept=3)
    for line in "abc":
        log.append(line)
    lines, seen = log.since(0)
    assert (lines, seen) == (("a", "b", "c"), 3)
    assert log.since(seen) == ((), 3)
    log.append("d")
    assert log.since(seen) == (("d",), 4)
    for line in "efgh":
        log.append(line)
    assert log.since(seen) == (("f", "g", "h"), 8)
    assert log.lines() == ("f", "g", "h")
