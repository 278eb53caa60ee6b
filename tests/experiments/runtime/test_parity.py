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
    kinds = {"fed": parity.fed("jit", parts=1), "carried": parity.carried("jit"), "drawn": parity.run("jit")}
    one = {kind: parity.outcome(result) for kind, result in kinds.items()}
    return *on_devices.outcomes(SCRIPT, (8, ())), one


@pytest.mark.parametrize(("kind", "parallel"), parity.RUNS)
def test_eight_devices_compute_what_one_does(outcomes, kind, parallel):
    """With dropout, and with batches that eight devices compute in two parts and one as a whole."""
    one = outcomes[1][kind]
    assert 0.4 < one["within"] < 0.6  # of the inputs are kept
    assert_close(outcomes[0][f"{kind} {parallel}"], one)


def test_a_state_split_over_devices_is_trained_saved_and_continued(outcomes):
    assert_close(outcomes[0]["split"], outcomes[1]["drawn"])


def assert_close(first, second):
    assert np.any(np.asarray(second["kernel"]))
    for name, value in second.items():
        np.testing.assert_allclose(first[name], value, rtol=2e-6, atol=2e-6, err_msg=name)
