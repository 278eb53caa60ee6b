"""Tunes block sizes on this machine's chip and writes them to its table in kernels/tables/.

    python -m benchmarks.tune_kernels --budget=300
    python -m benchmarks.tune_kernels --only=trans --backends=xla

For every case, backend and direction, times each of the backend's candidates against its default in one
process, and writes a line if the best one is faster by more than the noise. A line applies to all shapes
within a factor of two.
"""

import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import jax

from benchmarks import kernel_cases, kernels, machine, timing
from kernels import dispatch, tables

WORTH = 1.05  # minimum gain for a line


def tune(case: kernel_cases.Case, backend: str, direction: str, *, blocks: int = 5) -> dict[str, Any] | None:
    """Returns the table's line for one case, or None if no candidate is clearly faster than the default."""
    module = case.operation.backend(backend)
    arrays = case.draw()
    out, residual = jax.jit(lambda *x: module.forward(case.config, *x))(*arrays)
    operands = arrays if direction == "forward" else (*arrays, out, residual, out)
    function = getattr(module, direction)
    programs, candidates = {}, {}
    for candidate in module.block_candidates(case.config, *case.avals)[direction]:
        name = json.dumps(candidate, sort_keys=True)
        try:
            compiled = (
                jax.jit(lambda *x, sizes=candidate: function(case.config, *x, blocks=sizes))
                .lower(*operands)
                .compile()
            )
            jax.block_until_ready(compiled(*operands))
        except Exception as error:  # too large for the chip's memory: skipped
            print(f"  {name}: {type(error).__name__}")
            continue
        candidates[name] = candidate
        programs[name] = lambda compiled=compiled: compiled(*operands)
    if len(programs) < 2:
        return None
    times = timing.alternate(programs, blocks=blocks, block_seconds=0.1, uncounted=1)
    default = next(iter(times))
    best = min(times, key=lambda name: statistics.median(times[name]))
    gain = timing.ratio(times[default], times[best])
    print(f"  default {default}, best {best}: {timing.shown(gain)} times as fast", flush=True)
    if best == default or gain["median"] < WORTH or gain["least"] < 1:
        return None
    kind, sizes = case.operation.describe(case.config, *case.avals)
    return {
        "operation": case.operation.name,
        "kind": kind,
        "sizes": sizes,
        "backend": backend,
        "direction": direction,
        "blocks": candidates[best],
        "gain": round(gain["median"], 2),
    }


def write(lines: list[dict[str, Any]], chip: str, folder: Path = tables.FOLDER) -> Path:
    """Writes lines to the chip's table, replacing those for the same calls."""
    path = folder / f"{chip.replace(' ', '-')}.json"
    table: dict[str, Any] = {"chip": chip, "fastest": [], "blocks": []}
    if path.exists():
        table = json.loads(path.read_text(encoding="utf-8"))
    same = ("operation", "kind", "sizes", "backend", "direction")
    new = [[line[key] for key in same] for line in lines]
    kept = [line for line in table["blocks"] if [line[key] for key in same] not in new]
    table["blocks"] = [*kept, *lines]
    machine.write(path, table)
    return path


def main() -> int:
    """Runs the program with the values of its flags."""
    parser = machine.parser(
        __doc__,
        only=("", "only cases whose operation or name contains this"),
        backends=("", "comma-separated backends (default: those available here)"),
        budget=(float("inf"), "seconds after which no further case is started"),
        folder=(tables.FOLDER, "folder of the tables"),
    )
    arguments = parser.parse_args()
    found = list(kernel_cases.chosen(kernel_cases.cases(jax.default_backend()), arguments.only))
    kernel_cases.check_only(parser, arguments.only, found)
    end = time.monotonic() + arguments.budget
    backends = (
        arguments.backends.split(",")
        if arguments.backends
        else kernels.IMPLEMENTATIONS[jax.default_backend()]
    )
    lines, chip = [], machine.describe()["chip"]
    for case in found:
        for backend in backends:
            if dispatch.unsupported(case.operation, backend, case.config, case.avals):
                continue
            for direction in ("forward", "backward"):
                if time.monotonic() > end:
                    print(f"budget spent: skipping {case.operation.name} {case.name}, {backend}, {direction}")
                    continue
                print(f"{case.operation.name} {case.name}, {backend}, {direction}")
                line = tune(case, backend, direction)
                if line:  # written at once, so that an interrupted run loses nothing
                    lines.append(line)
                    write(lines, chip, arguments.folder)
    print(f"wrote {len(lines)} lines to {write(lines, chip, arguments.folder)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
