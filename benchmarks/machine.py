"""What a measurement was made on and how its record is kept, with nothing but JAX."""

import argparse
import datetime
import importlib.metadata
import json
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

import jax


def write(path: Path, value: Any) -> None:
    """Writes JSON, as `write_text` does."""
    write_text(path, json.dumps(value, indent=1, default=float) + "\n")


def write_text(path: Path, text: str) -> None:
    """Writes a file so that whoever reads it, even after a kill, finds the old one or the whole new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f".{path.name}.new")
    new.write_text(text, encoding="utf-8")
    new.replace(path)


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


def main() -> None:
    """The program: tells the machine, and writes it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="the record (default: nowhere)")
    found, out = describe(), parser.parse_args().out
    print(json.dumps(found, indent=1))
    if out is not None:
        write(out, found)


if __name__ == "__main__":
    main()
