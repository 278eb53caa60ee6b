"""Comparisons of training: programs with our course are timed, others are reported."""

import dataclasses
import re
import time
from typing import Any

import numpy as np
import pytest

from benchmarks import timing
from benchmarks.peers.training import measuring
from benchmarks.peers.training.subjects import Subject

RNG = np.random.default_rng(0)
BATCHES = tuple({"x": RNG.standard_normal((8, 3)), "y": RNG.standard_normal(8)} for _ in range(6))
START = {"layer/kernel": np.ones(3), "key/bias": np.zeros(1)}
OPTIONS = {"rate": 1e9, "blocks": 2, "block_seconds": 1e-3}


class Regression:
    """Linear regression by gradient descent in NumPy; `later` multiplies the rate from the third step on."""

    def __init__(self, rate=0.1, later=1.0, bias=0.0, fails=False):
        self.weights, self.bias = START["layer/kernel"].copy(), START["key/bias"] + bias
        self.facts = {"parameters": 4, "parts": 1, "peak_bytes": None, "operations": 100}
        self.rate, self.later, self.fails, self.steps = rate, later, fails, 0

    def __call__(self, batch):
        if self.fails:
            raise RuntimeError("no compiler\nat all")
        error = batch["x"] @ self.weights - batch["y"]
        self.weights -= self.rate * batch["x"].T @ error / len(error)
        self.steps += 1
        self.rate *= self.later if self.steps > 1 else 1
        self.bias = self.bias * 2  # of no effect
        time.sleep(1e-4)
        return np.square(error).mean()

    def nudge(self, seed):
        self.__init__()
        self.weights *= 1 + np.finfo(np.float64).eps

    def loss(self, result):
        return float(result)

    def params(self):
        return {"layer/kernel": self.weights.copy(), "key/bias": self.bias}


START_ANEW: Any = Regression
SUBJECT = Subject(
    "Regression", "regression", "8 x 3", BATCHES, START_ANEW, {}, {}, without_effect="key/bias$"
)


def measured(**programs):
    """Returns the peers of a row."""
    return measuring.measure(SUBJECT, programs, **OPTIONS)["peers"]


def test_a_program_with_our_course_is_timed():
    """The bias differs, but has no effect."""
    row = measuring.measure(SUBJECT, {"same": lambda start: Regression(bias=1.0)}, **OPTIONS)
    peer = row["peers"]["same"]
    assert peer["difference"] == peer["change_difference"] == 0
    assert len(row["ours"]["blocks"]) == len(peer["blocks"]) == 2
    assert peer["times_as_long"]["blocks"] == [
        b / a for a, b in zip(row["ours"]["blocks"], peer["blocks"], strict=True)
    ]
    assert row["ours"]["utilisation"] == pytest.approx(1e-7 / row["ours"]["seconds"])
    assert len(row["ours"]["losses"]) == len(BATCHES)
    assert (row["subject"], row["shape"], row["ours"]["parameters"]) == ("Regression", "8 x 3", 4)


def test_programs_start_with_our_parameters():
    given = []

    def make(start):
        given.append(start)
        return Regression()

    measured(same=make)
    assert {path: array.tolist() for path, array in given[0].items()} == {
        "layer/kernel": [1, 1, 1],
        "key/bias": [0],
    }


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"rate": 0.11}, r"the first step by 1\.0e-01 of its norm; the loss of step 2, "),
        ({"later": 1.5}, "^the loss of step 4, "),
        ({"rate": np.nan}, "loss of step 2: got nan"),
    ],
)
def test_another_optimizer_is_reported_and_not_timed(wrong, reason):
    peers = measured(wrong=lambda start: Regression(**wrong), same=lambda start: Regression())
    assert re.search(reason, peers["wrong"]["differs"])
    assert "seconds" not in peers["wrong"]
    assert "seconds" in peers["same"]


def test_parameters_are_compared_unless_they_have_no_effect():
    subject = dataclasses.replace(SUBJECT, without_effect="(?!)")
    programs = {"other": lambda start: Regression(bias=1.0)}
    assert "first step" in measuring.measure(subject, programs, **OPTIONS)["peers"]["other"]["differs"]


def test_failures_and_late_programs_are_reported():
    assert measured(broken=lambda start: Regression(fails=True))["broken"] == {
        "failed": "RuntimeError: no compiler"
    }
    row = measuring.measure(
        SUBJECT, {"late": lambda start: Regression()}, end=time.monotonic() - 1, **OPTIONS
    )
    assert row["peers"]["late"] == {"left_out": "budget exhausted"}
    assert "seconds" not in row["ours"]


def test_later_losses_may_differ_more_and_small_ones_count_as_a_tenth_of_the_largest():
    change = {"w": np.ones(2)}
    expected = measuring.Course([100.0, 1.0, 50.0, 50.0], change)
    assert "differs" not in measuring.compared(measuring.Course([100.0, 1.01, 50.0, 50.5], change), expected)
    assert (
        "step 2"
        in measuring.compared(measuring.Course([100.0, 1.1, 50.0, 50.0], change), expected)["differs"]
    )
    assert (
        "step 4"
        in measuring.compared(measuring.Course([100.0, 1.0, 50.0, 51.5], change), expected)["differs"]
    )


def test_a_chaotic_course_may_differ_as_much_as_it_does_from_itself():
    """Up to the step in question, and in the first change of the parameters."""
    change = {"w": np.ones(2)}
    expected = measuring.Course([1.0, 1.0, 1.0, 1.0], change)
    own = measuring.Distance([0.0, 0.01, 0.0, 0.0], 0.01)
    late = measuring.Course([1.0, 1.0, 1.039, 1.0], {"w": 1.039 * np.ones(2)})
    assert "differs" not in measuring.compared(late, expected, own=own)
    early = measuring.Course([1.01, 1.0, 1.0, 1.0], {"w": 1.041 * np.ones(2)})
    assert measuring.compared(early, expected, own=own)["differs"].count("step") == 2


def test_the_own_course_is_begun_a_rounding_error_away():
    ours = measuring.measure(SUBJECT, {}, **OPTIONS)["ours"]
    assert 0 < ours["own_difference"] < 1e-12
    assert 0 < ours["own_change_difference"] < 1e-12


def test_geometric_means_are_of_programs_in_every_row():
    def row(**blocks):
        peers = {name: {"times_as_long": timing.spread(ratios)} for name, ratios in blocks.items()}
        return {"peers": peers | {"failing": {"failed": "no compiler"}}}

    found = measuring.geometric_means([row(a=[1.0, 2.0], b=[1.0, 1.0]), row(a=[4.0, 8.0])])
    assert list(found) == ["a"]
    assert found["a"]["blocks"] == pytest.approx([2.0, 4.0])
    assert measuring.geometric_means([]) == {}
