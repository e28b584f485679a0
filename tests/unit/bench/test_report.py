from bench.report import Measured, Missed, Missing, NotMeasured, Reached, Run, markdown, stand
from bench.workloads import Better, Bound, Contestant, Figure, TimesBestPeer, Workload

OURS = Contestant("ours", "ours", ("w",))
FLINK = Contestant("flink", "flink", ("w",))
SPARK = Contestant("spark", "spark", ("w",))
OURS_FREE = Contestant("ours, free", "ours", ("w",), baseline_of="ours")
RATE = Figure("throughput", "rec/s", ("rec_per_s",), Better.HIGHER, TimesBestPeer(8), TimesBestPeer(15))
LATENCY = Figure("latency", "ms", ("p50_ms",), Better.LOWER, Bound(12), Bound(5))
COST = Figure("cost", "%", ("rec_per_s",), Better.LOWER, Bound(5), Bound(2), against_baseline=True)


def workload(*figures: Figure) -> Workload:
    return Workload("W", "a workload", (OURS, FLINK, SPARK, OURS_FREE), figures)


def run(contestant: Contestant, **result: object) -> Run:
    return Run("W", contestant.name, dict(result))


def test_the_ratio_is_taken_between_medians_and_against_the_better_peer() -> None:
    runs = [run(OURS, rec_per_s=rate) for rate in (100, 900, 1000)]
    runs += [run(FLINK, rec_per_s=100), run(SPARK, rec_per_s=90)]
    (standing,) = stand(workload(RATE), runs)
    assert standing.best_peer is not None
    assert standing.best_peer.contestant is FLINK
    assert standing.must == Reached("9 times flink, 8 wanted")
    assert standing.goal == Missed("9 times flink, 15 wanted")


def test_the_better_peer_is_the_lower_one_where_lower_is_better() -> None:
    (standing,) = stand(workload(LATENCY), [run(OURS, p50_ms=10), run(FLINK, p50_ms=37), run(SPARK, p50_ms=2300)])
    assert standing.best_peer is not None
    assert standing.best_peer.contestant is FLINK
    assert standing.must == Reached("10 ms, at most 12 wanted")
    assert standing.goal == Missed("10 ms, at most 5 wanted")


def test_a_must_is_not_reached_by_default_when_ours_failed() -> None:
    (standing,) = stand(workload(RATE), [Run("W", "ours", None, "ended with code 1"), run(FLINK, rec_per_s=100)])
    assert isinstance(standing.must, NotMeasured)
    assert standing.rows[0] == Missing(OURS, "ended with code 1")


def test_a_ratio_without_any_peer_is_not_measured() -> None:
    (standing,) = stand(workload(RATE), [run(OURS, rec_per_s=10**9)])
    assert standing.must == NotMeasured("no peer was measured")


def test_the_cost_of_checkpoints_is_how_much_longer_a_record_takes_than_without_them() -> None:
    (standing,) = stand(workload(COST), [run(OURS, rec_per_s=100), run(OURS_FREE, rec_per_s=106)])
    assert isinstance(standing.rows[0], Measured)
    assert round(standing.rows[0].median, 6) == 6
    assert isinstance(standing.must, Missed)


def test_a_cost_that_was_measured_in_pairs_needs_no_baseline() -> None:
    (standing,) = stand(workload(COST), [run(OURS, rec_per_s=95, cost_percent=3.0), run(OURS_FREE, rec_per_s=200)])
    assert isinstance(standing.ours, Measured)
    assert standing.ours.median == 3.0
    assert isinstance(standing.must, Reached)


def test_a_baseline_is_no_contestant() -> None:
    (standing,) = stand(workload(RATE), [run(OURS, rec_per_s=94), run(OURS_FREE, rec_per_s=100)])
    assert [row.contestant.name for row in standing.rows] == ["ours", "flink", "spark"]


def test_the_table_names_who_was_not_measured_and_why() -> None:
    runs = [run(OURS, rec_per_s=900, others_cores=0.25), Run("W", "flink", None, "not installed: install.sh flink")]
    text = markdown(stand(workload(RATE), runs), machine=["2 cores"], plot=None)
    assert "| flink | not measured | | 0 | | | not installed: install.sh flink |" in text
    assert "| ours | 900 | 900 to 900 | 1 |  | 0.25 cores |  |" in text
