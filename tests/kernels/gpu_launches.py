"""The shared memory that Mosaic gives to the kernels of a program for Hopper GPUs."""

import re
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest


def allocated[Lowered](lower: Callable[[], Lowered]) -> tuple[Lowered, dict[str, int]]:
    """Returns what a function that lowers kernels returns, and their bytes of shared memory by name."""
    memory = {}
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("MOSAIC_GPU_DUMP_RESOURCES", "1")
        patch.setenv("MOSAIC_GPU_DUMP_TO", folder)
        lowered = lower()
        for path in Path(folder).glob("*.resources.txt"):
            text = path.read_text()
            (scratch,) = re.findall(r"smem_scratch_bytes=(\d+)", text)
            barriers = re.findall(r"num_barriers=(\d+)[^)]*\): (\d+)", text)
            memory[path.name.rsplit("_", 1)[0]] = int(scratch) + 8 * sum(int(n) * int(m) for n, m in barriers)
    return lowered, memory
