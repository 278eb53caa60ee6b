"""Compiles every Pallas kernel for an H200 and for TPUs v5e, v5p, v6e, on a machine that has none of them.

    make aot                                     # creates an environment and compiles everything
    python -m benchmarks.aot --chips=h200 --only=two_simplicial --out=

For the H200 it prints each kernel's registers, spilled bytes and the instructions of its inner loop, in total
and per exponential (a kernel has one per logit). The record is written to results/kernels/aot.json. The exit
status is 1 if a kernel does not compile.
"""

import dataclasses
import importlib.metadata
import os
import platform
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

os.environ["JAX_PLATFORMS"] = "cpu"  # nothing runs on the chips; set before JAX looks for devices
os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")
os.environ.setdefault("ALLOW_MULTIPLE_LIBTPU_LOAD", "1")
os.environ.setdefault("MOSAIC_GPU_DUMP_PTXAS", "1")
os.environ.setdefault("MOSAIC_GPU_DUMP_SASS", "1")

import jax

from benchmarks import kernel_cases, machine, timing
from benchmarks.aot import chips, machine_code
from kernels import chips as kernel_chips
from kernels import dispatch


def compiled(chip: str, case: kernel_cases.Case) -> dict[str, Any]:
    """Compiles one case, forward and backward, for one chip, and returns a row of the record."""
    backend = chips.backend_of(chip)
    row: dict[str, Any] = {"chip": chip, "operation": case.operation.name, "case": case.name}
    least = kernel_chips.DEFAULT[backend]
    if reason := dispatch.unsupported(case.operation, backend, case.config, case.avals, least):
        return {**row, "unsupported": reason}
    with tempfile.TemporaryDirectory() as folder:
        os.environ["MOSAIC_GPU_DUMP_TO"] = folder
        start = time.perf_counter()
        try:
            program = chips.compile_for(chip, case.function("both", backend), *case.avals)
        except Exception as error:  # every error of the compilers is recorded
            return {**row, "failed": timing.one_line(error)}
        row["seconds"] = round(time.perf_counter() - start, 1)
        if backend == "gpu":
            row["kernels"] = [dataclasses.asdict(kernel) for kernel in machine_code.read(Path(folder))]
    memory = program.memory_analysis()
    if memory is not None:
        row["temporary_bytes"] = memory.temp_size_in_bytes
    return row


def describe(row: dict[str, Any]) -> str:
    """Returns a row as a line of text, followed by a line for each of its kernels."""
    head = f"{row['chip']:5} {row['operation']:26} {row['case']:36}"
    if "unsupported" in row:
        return f"{head} not supported: {row['unsupported']}"
    if "failed" in row:
        return f"{head} FAILED {row['failed']}"
    lines = [
        f"{head} compiled in {row['seconds']:5.1f} s, {row.get('temporary_bytes', 0) / 1e6:.1f} MB temporary"
    ]
    for kernel in row.get("kernels", ()):
        line = f"      {kernel['name']:40} {kernel['registers']:3} registers"
        line += f", {kernel['spilled_bytes']} bytes spilled"
        if loop := kernel["loop"]:
            each = loop["instructions"] / loop["exponentials"]
            line += f"; loop of {loop['instructions']}, {each:.1f} per exponential, {loop['matrix']} HGMMA"
        lines.append(line)
    return "\n".join(lines)


def main() -> int:
    """Runs the program and returns its exit status."""
    parser = machine.parser(
        __doc__,
        chips=(",".join(chips.NAMES), "chips to compile for, separated by commas"),
        only=("", "only cases whose operation or name contains this text"),
        out=("results/kernels/aot.json", "file for the record; empty to write none"),
    )
    arguments = parser.parse_args()
    names = arguments.chips.split(",")
    if unknown := [name for name in names if name not in chips.NAMES]:
        parser.error(f"--chips: got {', '.join(unknown)}, expected some of {', '.join(chips.NAMES)}")
    rows = []
    for chip in names:
        for case in kernel_cases.chosen(kernel_cases.to_compile(), arguments.only):
            rows.append(compiled(chip, case))
            print(describe(rows[-1]), flush=True)
    packages = ("jax", "jaxlib", "libtpu", "jax-cuda13-plugin", "nvidia-cuda-nvcc")
    record = {
        "command": "make aot",
        "host": platform.machine(),
        "versions": {name: importlib.metadata.version(name) for name in packages},
        "rows": rows,
    }
    if arguments.out:
        machine.write(Path(arguments.out), record)
    spilled = [row for row in rows if any(kernel["spilled_bytes"] for kernel in row.get("kernels", ()))]
    failed = [row for row in rows if "failed" in row]
    print(
        f"{len(rows)} compilations, {len(failed)} failed, {len(spilled)} with spills (jax {jax.__version__})"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
