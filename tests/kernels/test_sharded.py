"""Batch and heads spread over eight devices give what one device gives."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
OPERATIONS = ("two_simplicial, unsigned", "two_simplicial, signed", "trans", "trilinear")


@pytest.mark.slow
def test_eight_devices_compute_what_one_does():
    environment = {
        **os.environ,
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": "--xla_force_host_platform_device_count=8",
        "PYTHONPATH": str(HERE.parents[1]),
    }
    command = [sys.executable, "-W", "error", str(HERE / "sharded.py")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    errors = json.loads(done.stdout.splitlines()[-1])
    compiled = ("jit", "jit, explicit")
    ways = (*compiled, "rows", "shard_map, xla", "shard_map, tpu_interpret")
    expected = {f"{operation}, {how}" for operation in OPERATIONS for how in ways}
    assert set(errors) == expected | {f"long batch, {how}" for how in compiled}
    assert all(one < 1e-5 for one in errors.values()), errors
