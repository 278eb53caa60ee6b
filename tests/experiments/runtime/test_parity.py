"""The three parallel modes on eight devices and on one device compute the same run."""

from pathlib import Path

import jax
import numpy as np
import pytest

from tests import on_devices
from tests.experiments.runtime import parity

SCRIPT = Path(__file__).with_name("parity.py")


@pytest.fixture(scope="module")
def outcomes(compiled_quickly):
    """Those of eight devices, in a process of its own, and those of the one of this process."""
    assert jax.device_count() == 1
    return *on_devices.outcomes(SCRIPT, (8, ("jit", "shard_map", "pmap"))), parity.outcomes(("jit",))


@pytest.mark.parametrize("kind", ["drawn", "fed", "carried"])
@pytest.mark.parametrize("parallel", ["jit", "shard_map", "pmap"])
def test_eight_devices_compute_what_one_does(outcomes, kind, parallel):
    assert_close(outcomes[0][kind][parallel], outcomes[1][kind]["jit"])


def test_a_state_split_over_devices_is_trained_saved_and_continued(outcomes):
    assert_close(outcomes[0]["split"], outcomes[1]["drawn"]["jit"])


@pytest.mark.parametrize("parallel", ["jit", "shard_map", "pmap"])
def test_every_row_draws_with_its_own_key(outcomes, parallel):
    """The same one whichever device and whichever part of the batch the row is in."""
    drawn, expected = np.asarray(outcomes[0]["rows"][parallel]), np.asarray(outcomes[1]["rows"]["jit"])
    assert len(np.unique(drawn)) == drawn.size == 4 * 16
    assert np.all((drawn > 0) & (drawn < 1))
    np.testing.assert_allclose(drawn, expected, rtol=1e-6)


@pytest.mark.parametrize("parallel", ["jit", "shard_map", "pmap"])
def test_neither_sums_nor_dropout_depend_on_devices_or_parts(outcomes, parallel):
    one = outcomes[1]["drawn"]["jit"]
    assert 0.4 < one["within"] < 0.6  # of the inputs are kept
    assert_close(outcomes[0]["parts"][parallel], one)
    assert_close(outcomes[1]["parts"]["jit"], one)


def assert_close(first, second):
    assert np.any(np.asarray(second["kernel"]))
    for name, value in second.items():
        np.testing.assert_allclose(first[name], value, rtol=2e-6, atol=2e-6, err_msg=name)
