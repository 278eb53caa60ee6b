"""Comparisons: equal results are timed, others are reported; gradients follow the definition."""

import time

import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks.peers import comparing
from benchmarks.peers.comparing import JaxProgram, Layout, Subject

RNG = np.random.default_rng(0)
X, W = RNG.standard_normal((3, 4)).astype(np.float32), RNG.standard_normal((4, 2)).astype(np.float32)


def ours(params, x, symbols):
    return jnp.sin(x) @ params["layer"]["kernel"] + symbols[:, None].astype(x.dtype), x.T


SUBJECT = Subject("sines", "sines", "3 x 4", ours, {"layer/kernel": W}, (X, np.arange(3, dtype=np.int32)))


class Plain:
    """A library's program for the subject, in NumPy with gradients by hand."""

    def __init__(self, factor=1.0, fails=False):
        self.factor, self.fails = factor, fails

    def call(self, direction):
        def run():
            if self.fails:
                raise RuntimeError("no compiler\nat all")
            time.sleep(1e-4)
            return np.sin(X)

        return run

    def arrays(self, direction, result):
        found = {"output 0": self.factor * result @ W + np.arange(3)[:, None], "output 1": X.T}
        if direction == "forward":
            return found
        first, second = SUBJECT.cotangents()
        return found | {
            "gradient of layer/kernel": result.T @ first,
            "gradient of input 0": np.cos(X) * (first @ W.T) + second.T,
        }


@pytest.mark.parametrize("direction", comparing.DIRECTIONS)
def test_a_peer_with_the_same_numbers_is_timed(direction):
    row = comparing.measure(SUBJECT, direction, {"plain": Plain}, blocks=3, block_seconds=1e-3)
    peer = row["peers"]["plain"]
    assert peer["difference"] < 1e-6
    assert len(row["ours"]["blocks"]) == len(peer["blocks"]) == 3
    ratio = peer["times_as_long"]
    assert 0 < ratio["least"] <= ratio["median"] <= ratio["greatest"]
    ratios = sorted(b / a for a, b in zip(row["ours"]["blocks"], peer["blocks"], strict=True))
    assert ratio["median"] == pytest.approx(ratios[1])
    assert "times as long" in comparing.summary(row)
    assert (row["subject"], row["shape"], row["direction"]) == ("sines", "3 x 4", direction)


def test_peers_that_differ_fail_or_start_too_late_are_reported_and_not_timed():
    peers = {"wrong": lambda: Plain(1.01), "broken": lambda: Plain(fails=True)}
    row = comparing.measure(SUBJECT, "forward", peers, blocks=1, block_seconds=1e-3)
    assert "output 0 by" in row["peers"]["wrong"]["differs"]
    assert row["peers"]["broken"] == {"failed": "RuntimeError: no compiler"}
    assert "seconds" not in row["peers"]["wrong"]
    assert "seconds" not in row["ours"]
    row = comparing.measure(SUBJECT, "forward", {"late": Plain}, end=time.monotonic() - 1)
    assert row["peers"]["late"] == {"left_out": "budget exhausted"}
    assert "budget exhausted" in comparing.summary(row)


def test_a_layout_is_undone_in_outputs_and_gradients():
    """A function with its own layout gives our results and gradients in our layout."""
    x = RNG.standard_normal((2, 3, 4)).astype(np.float32)
    subject = Subject("", "", "", lambda params, x: (jnp.cumsum(x, axis=1),), {}, (x,))

    def peer(y):  # [4, 2, 3] to [3, 4, 2]
        return (jnp.cumsum(jnp.transpose(y, (2, 0, 1)), axis=0),)

    programs = JaxProgram(subject, peer, Layout(((2, 0, 1),), ((1, 2, 0),))), JaxProgram(subject)
    found, expected = (p.arrays("gradient", p.call("gradient")()) for p in programs)
    assert set(found) == {"output 0", "gradient of input 0"}
    for name, array in expected.items():
        np.testing.assert_allclose(found[name], array, rtol=1e-6, atol=1e-6)


def test_difference_is_over_the_greatest_number():
    expected = {"output 0": np.array([100.0, 1.0]), "gradient of key/bias": np.array([1e-9])}
    expected["gradient of kernel"] = np.array([5.0])
    found = {name: array.copy() for name, array in expected.items()}
    assert comparing.difference(found, expected).greatest == 0
    found["output 0"][1] += 0.1
    norm = 0.1 / np.sqrt(10001)
    assert comparing.difference(found, expected) == (pytest.approx(1e-3), "output 0", pytest.approx(norm))
    found["gradient of key/bias"] = np.array([-1e-9])  # rounding, compared with gradients of 5
    assert comparing.difference(found, expected).where == "output 0"
    found["gradient of kernel"] = np.array([6.0])
    apart = comparing.difference(found, expected)
    assert apart == (pytest.approx(0.2), "gradient of kernel", pytest.approx(0.2))


def test_a_kink_counts_by_its_share():
    """No value of a forward pass may differ much; a few values of a gradient may."""
    expected = {"gradient of kernel": np.ones(10**6), "output 0": np.ones(10**6)}
    found = {name: array.copy() for name, array in expected.items()}
    found["gradient of kernel"][0] = found["output 0"][0] = 1.02
    apart = comparing.difference(found, expected)
    assert apart.judged("gradient") == pytest.approx(2e-5)
    assert apart.judged("forward") == pytest.approx(0.02)


@pytest.mark.parametrize(
    ("found", "message"),
    [({}, "output 0"), ({"output 0": np.full(2, np.nan)}, "finite"), ({"output 0": np.ones(3)}, "shape")],
)
def test_results_that_cannot_be_compared_are_refused(found, message):
    with pytest.raises(ValueError, match=message):
        comparing.difference(found, {"output 0": np.ones(2)})
