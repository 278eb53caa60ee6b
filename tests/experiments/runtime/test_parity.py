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


def run(devices, *modes):
    flags = f"--xla_force_host_platform_device_count={devices}"
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-W", "error", str(HERE / "parity.py"), *modes]
    return subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


@pytest.fixture(scope="module")
def outcomes():
    processes = [run(8, "jit", "shard_map", "pmap"), run(1, "jit")]
    results = []
    for process in processes:
        output, errors = process.communicate(timeout=300)
        assert process.returncode == 0, errors
        results.append(json.loads(output))
    assert [result["devices"] for result in results] == [8, 1]
    return results


@pytest.mark.parametrize("kind", ["drawn", "fed", "carried"])
@pytest.mark.parametrize("parallel", ["jit", "shard_map", "pmap"])
def test_eight_devices_compute_what_one_does(outcomes, kind, parallel):
    eight, one = outcomes[0][kind][parallel], outcomes[1][kind]["jit"]
    assert np.any(np.asarray(one["kernel"]))
    for name, value in one.items():
        np.testing.assert_allclose(eight[name], value, rtol=2e-6, atol=2e-6, err_msg=name)
