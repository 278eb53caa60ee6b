"""Scripts run in processes of their own on so many CPU devices; what they print last is JSON."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]


def outcomes(script: Path, *calls: tuple[int, tuple[str, ...]], seconds: float = 400) -> list[dict[str, Any]]:
    """Runs a script once for each call, all side by side.

    Args:
        script: prints JSON as its last line, with the number of its devices as `devices`.
        calls: number of devices and arguments.
        seconds: until a process is given up.

    Returns:
        What each printed.
    """
    processes = [_start(script, *call) for call in calls]
    try:
        ends = [process.communicate(timeout=seconds) for process in processes]
    finally:
        for process in processes:
            process.kill()  # none outlives a failed test
    for process, (_, errors) in zip(processes, ends, strict=True):
        assert process.returncode == 0, errors
    results = [json.loads(output.splitlines()[-1]) for output, _ in ends]
    assert [result.pop("devices") for result in results] == [devices for devices, _ in calls]
    return results


def _start(script: Path, devices: int, arguments: tuple[str, ...]) -> subprocess.Popen[str]:
    flags = f"--xla_force_host_platform_device_count={devices}"
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-W", "error", str(script), *arguments]
    return subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
