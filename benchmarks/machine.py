"""What a measurement was made on, told with nothing but JAX."""

import datetime
import importlib.metadata
import json
import os
import platform
import subprocess
from typing import Any

import jax


def describe() -> dict[str, Any]:
    """Device, driver, versions and date."""
    device = jax.devices()[0]
    return {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "platform": jax.default_backend(),
        "chip": device.device_kind,
        "devices": len(jax.devices()),
        "cpus": os.cpu_count(),
        "driver": _driver() if jax.default_backend() == "gpu" else None,
        "versions": {"python": platform.python_version(), **_versions()},
    }


def _versions() -> dict[str, str]:
    found = {}
    for distribution in importlib.metadata.distributions():
        name = (distribution.metadata["Name"] or "").lower()
        if name in ("jax", "jaxlib", "libtpu", "numpy") or name.startswith("jax-cuda"):
            found[name] = distribution.version
    return dict(sorted(found.items()))


def _driver() -> str | None:
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip().splitlines()[0]


if __name__ == "__main__":
    print(json.dumps(describe(), indent=1))
