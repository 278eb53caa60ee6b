"""The linear probe on vectors that are known to hold a class, or nothing."""

import numpy as np

from experiments.runtime.probes import linear_probe


def test_a_probe_reads_what_is_linear_and_nothing_else():
    """Balanced: always giving the commoner class is worth a half."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(600, 5))
    linear = (x @ [1, -2, 0.5, 0, 0] > 1.5).astype(int)
    halves = (x[:300], linear[:300]), (x[300:], linear[300:])
    assert linear.mean() < 0.3
    assert linear_probe(*halves) > 0.9
    units = np.asarray([1e-3, 1e3, 1, 1e-2, 1e2])  # do not matter
    assert linear_probe(*((of * units, labels) for of, labels in halves)) == linear_probe(*halves)
    random = rng.integers(0, 2, 600)
    assert 0.4 < linear_probe((x[:300], random[:300]), (x[300:], random[300:])) < 0.6
    rare = (rng.random(600) < 0.1).astype(int)
    assert 0.3 < linear_probe((x[:300], rare[:300]), (x[300:], rare[300:])) < 0.7
