"""Finds block sizes on the chip that is here, and writes them to its table in kernels/tables/.

    python -m benchmarks.tune_kernels --budget=300
    python -m benchmarks.tune_kernels --only=trans --backends=xla

For every case, backend and direction each of the backend's candidates is timed against its default, in one
run; a line is written where one is faster by more than the noise. A line serves all shapes within a factor of
two.
"""

import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import jax

from benchmarks import kernel_cases, kernels, machine, timing
from kernels import tables

WORTH = 1.05  # a gain that is written down


def tune(case: kernel_cases.Case, backend: str, direction: str, *, blocks: int = 5) -> dict[str, Any] | None:
    """The line of the table for one case, None when the default is as good as any."""
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
        except Exception as error:  # too large for the chip's memories: not a candidate here
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
    """Puts lines into the chip's table in place of those for the same calls."""
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
    """The program."""
    arguments = machine.parser(
        __doc__,
        only=("", "only cases whose operation or name has this in it"),
        backends=("", "separated by commas (default: those that run here)"),
        budget=(float("inf"), "seconds after which no case is begun"),
        folder=(tables.FOLDER, "where tables are"),
    ).parse_args()
    end = time.monotonic() + arguments.budget
    backends = (
        arguments.backends.split(",")
        if arguments.backends
        else kernels.IMPLEMENTATIONS[jax.default_backend()]
    )
    lines, chip = [], machine.describe()["chip"]
    for case in kernel_cases.chosen(kernel_cases.cases(jax.default_backend()), arguments.only):
        for backend in backends:
            if case.operation.backend(backend).unsupported(case.config, *case.avals):
                continue
            for direction in ("forward", "backward"):
                if time.monotonic() > end:
                    print(f"the budget ends before {case.operation.name} {case.name}, {backend}, {direction}")
                    continue
                print(f"{case.operation.name} {case.name}, {backend}, {direction}")
                line = tune(case, backend, direction)
                if line:  # written at once: what ends the run early loses nothing
                    lines.append(line)
                    write(lines, chip, arguments.folder)
    print(f"{len(lines)} lines for {write(lines, chip, arguments.folder)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
