"""The record of how fast problems are drawn: what is timed is what its name says."""

import pytest

from benchmarks import kinship as benchmark
from folnet import kinship


def test_every_length_is_timed_alone():
    for length in kinship.LENGTHS:
        assert benchmark.KINDS[f"k={length}"].lengths == (length,)
    assert set(benchmark.tasks(1)) == {*benchmark.KINDS, "arrays of k=2,3", "stories of k=2,3"}


def test_a_task_draws_the_problems_it_is_asked_for():
    drawn = benchmark.tasks(4)["k=2,3"](8)
    assert drawn == kinship.Kinship(lengths=(2, 3)).draw(range(8, 12))


@pytest.mark.slow
def test_a_record_has_a_rate_for_every_kind():
    found = benchmark.record(problems=5, rounds=2)
    assert set(found["problems_per_second"]) == set(benchmark.tasks(1))
    assert all(rate > 0 for rate in found["problems_per_second"].values())
    assert found["versions"]
