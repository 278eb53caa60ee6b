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


def test_a_state_split_over_devices_is_trained_saved_and_continued(outcomes):
    assert_close(outcomes[0]["split"], outcomes[1]["drawn"]["jit"])


@pytest.mark.parametrize("parallel", ["jit", "shard_map", "pmap"])
def test_every_shard_and_every_part_of_a_batch_draws_with_a_key_of_its_own(outcomes, parallel):
    """No two of them share dropout, nor do two steps; all rows of a part have one key."""
    for outcome, devices in zip(outcomes, (8, 1), strict=True):
        if parallel not in outcome["keyed"]:
            continue
        drawn, calls = outcome["keyed"][parallel], 2 * (devices if parallel != "jit" else 1)
        assert [len(set(step)) for step in drawn] == [calls] * 3
        assert len({number for step in drawn for number in step}) == 3 * calls
        assert all(0 < number < 1 for step in drawn for number in step)
        if parallel == "jit":  # a part has every second row, so that a device has some of each
            assert all(len(set(step[0::2])) == len(set(step[1::2])) == 1 for step in drawn)


def test_dropout_is_drawn_for_the_whole_batch_by_the_compiler_and_by_shard_elsewhere(outcomes):
    """Under `jit` the draws are those of one device; the other two modes draw the same as each other."""
    eight, one = outcomes[0]["dropped"], outcomes[1]["dropped"]
    assert_close(eight["jit"], one["jit"])
    assert_close(eight["shard_map"], eight["pmap"])
    assert abs(eight["jit"]["loss"] - eight["pmap"]["loss"]) > 1e-3
    assert outcomes[0]["keyed"]["jit"] == outcomes[1]["keyed"]["jit"]
    assert outcomes[0]["keyed"]["shard_map"] == outcomes[0]["keyed"]["pmap"]


def assert_close(first, second):
    assert np.any(np.asarray(second["kernel"]))
    for name, value in second.items():
        np.testing.assert_allclose(first[name], value, rtol=2e-6, atol=2e-6, err_msg=name)
