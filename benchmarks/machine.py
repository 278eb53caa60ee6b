"""What a measurement was made on and how its record is kept, with nothing but JAX."""

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


def write(path: Path, value: Any) -> None:
    """Writes JSON, as `write_text` does."""
    write_text(path, json.dumps(value, indent=1, default=float) + "\n")


def write_text(path: Path, text: str) -> None:
    """Writes a file so that whoever reads it, even after a kill, finds the old one or the whole new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f".{path.name}.new")
    new.write_text(text, encoding="utf-8")
    new.replace(path)


def markdown(head: Sequence[Any], rows: Iterable[Sequence[Any]]) -> str:
    """A table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(map(str, line))} |\n" for line in lines)


def parser(text: str | None, **flags: tuple[Any, str]) -> argparse.ArgumentParser:
    """The flags of a program: for each its default, whose type it has, and what it says."""
    found = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, (default, told) in flags.items():
        found.add_argument(f"--{name}", default=default, type=type(default), help=told)
    return found


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
    out = parser(__doc__, out=("", "the record; empty: nowhere")).parse_args().out
    found = describe()
    print(json.dumps(found, indent=1))
    if out:
        write(Path(out), found)


if __name__ == "__main__":
    main()
