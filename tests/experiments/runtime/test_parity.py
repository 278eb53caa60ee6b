"""The three parallel modes on eight devices, and one device, compute the same run."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[2]


def start(devices, *arguments):
    flags = f"--xla_force_host_platform_device_count={devices}"
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-W", "error", str(HERE / "parity.py"), *arguments]
    return subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def results_of(*processes):
    try:
        ends = [process.communicate(timeout=120) for process in processes]
    finally:
        for process in processes:
            process.kill()  # none outlives a failed test
    for process, (_, errors) in zip(processes, ends, strict=True):
        assert process.returncode == 0, errors
    return [json.loads(output.splitlines()[-1]) for output, _ in ends]


@pytest.fixture(scope="module")
def outcomes():
    results = results_of(start(8, "jit", "shard_map", "pmap"), start(1, "jit"))
    assert [result["devices"] for result in results] == [8, 1]
    return results


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
