"""Describes the machine of a measurement and writes records; needs only JAX."""

import argparse
import datetime
import importlib.metadata
import json
import os
import platform
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import jax

from logic_zoo.writing import write_whole


def write(path: Path, value: Any) -> None:
    """Writes a value as JSON; readers see the old file or the whole new one."""
    write_whole(path, json.dumps(value, indent=1, default=float) + "\n")


def markdown(head: Sequence[Any], rows: Iterable[Sequence[Any]]) -> str:
    """Formats a table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(map(str, line))} |\n" for line in lines)


def parser(text: str | None, **flags: tuple[Any, str]) -> argparse.ArgumentParser:
    """Builds an argument parser from each flag's default value, which also gives its type, and help text."""
    found = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, (default, meaning) in flags.items():
        found.add_argument(f"--{name}", default=default, type=type(default), help=meaning)
    return found


def describe() -> dict[str, Any]:
    """Returns device, driver, versions and date."""
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
    """Prints the description of this machine, and writes it to `--out`."""
    out = parser(__doc__, out=("", "output file; empty to write none")).parse_args().out
    found = describe()
    print(json.dumps(found, indent=1))
    if out:
        write(Path(out), found)


if __name__ == "__main__":
    main()
