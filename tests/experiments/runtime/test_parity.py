"""The three parallel modes on eight devices and on one device compute the same run."""

from pathlib import Path

import numpy as np
import pytest

from tests import on_devices

SCRIPT = Path(__file__).with_name("parity.py")


@pytest.fixture(scope="module")
def outcomes():
    return on_devices.outcomes(SCRIPT, (8, ("jit", "shard_map", "pmap")), (1, ("jit",)))


@pytest.mark.parametrize("kind", ["drawn", "fed", "carried"])
@pytest.mark.parametrize("parallel", ["jit", "shard_map", "pmap"])
def test_eight_devices_compute_what_one_does(outcomes, kind, parallel):
    assert_close(outcomes[0][kind][parallel], outcomes[1][kind]["jit"])


@pytest.mark.parametrize("parallel", ["jit", "shard_map", "pmap"])
def test_a_batch_in_parts_is_the_whole_batch(outcomes, parallel):
    for outcome in (outcomes[0]["accumulated"][parallel], outcomes[1]["accumulated"]["jit"]):
        assert_close(outcome, outcomes[1]["drawn"]["jit"])


def test_a_state_split_over_devices_is_trained_saved_and_gone_on_with(outcomes):
    assert_close(outcomes[0]["split"], outcomes[1]["drawn"]["jit"])


def assert_close(first, second):
    assert np.any(np.asarray(second["kernel"]))
    for name, value in second.items():
        np.testing.assert_allclose(first[name], value, rtol=2e-6, atol=2e-6, err_msg=name)
