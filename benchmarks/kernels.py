"""Measures every kernel at the shapes of real models against what a user would otherwise write.

    python -m benchmarks.kernels                            # on this machine; results/kernels/CHIP.json
    python -m benchmarks.kernels --only=trans --out=

For each shape and implementation: time per call, work per second (triples, multiply-adds, flop), speedup over
the plain path (median over neighbouring blocks, with minimum and maximum), time relative to the lower bound
(if the chip's rates are known), and peak temporary memory according to the compiler. Needs only the
repository and JAX.
"""

import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax

from benchmarks import kernel_cases, machine, timing
from kernels import dispatch

IMPLEMENTATIONS: dict[str, tuple[dispatch.Name, ...]] = {
    "cpu": ("xla",),
    "gpu": ("xla", "gpu"),
    "tpu": ("xla", "tpu"),
}


def measure(
    case: kernel_cases.Case, direction: str, *, blocks: int = 5, block_seconds: float = 0.2
) -> dict[str, Any]:
    """Measures a row: times of every available implementation and baseline, and their ratios."""
    with timing.turn(alone=False):
        arrays = jax.block_until_ready(case.draw())
    programs: dict[str, Callable[[], Any]] = {}
    row: dict[str, Any] = {"operation": case.operation.name, "case": case.name, "direction": direction}
    row["paths"] = paths = {}
    functions = {name: case.function(direction, name) for name in IMPLEMENTATIONS[jax.default_backend()]}
    functions |= {name: case.baseline(direction, name) for name in case.baselines}
    for name, function in functions.items():
        try:
            with timing.turn(alone=False):
                own = jax.block_until_ready(case.arrays_of(name, arrays))
                start = time.perf_counter()
                compiled = jax.jit(function).lower(*own).compile()
                seconds = time.perf_counter() - start
                jax.block_until_ready(compiled(*own))
        except Exception as error:  # out of memory or unsupported: recorded as a result
            paths[name] = {"failed": timing.one_line(error)}
            continue
        memory = compiled.memory_analysis()
        paths[name] = {
            "compile_seconds": round(seconds, 2),
            "temporary_bytes": None if memory is None else memory.temp_size_in_bytes,
        }
        programs[name] = lambda compiled=compiled, own=own: compiled(*own)
    times = timing.alternate(programs, blocks=blocks, block_seconds=block_seconds, uncounted=1)
    unit, count = case.work
    chip = kernel_cases.CHIPS.get(jax.devices()[0].device_kind)
    for name, blocks_of in times.items():
        path = paths[name]
        path["seconds"] = statistics.median(blocks_of)
        path["blocks"] = sorted(blocks_of)
        if direction == "forward":
            path[f"{unit}_per_second"] = count / path["seconds"]
        if chip is not None:
            path["times_floor"] = path["seconds"] / case.floor(chip, direction)
        path["speedup"] = {
            other: timing.ratio(times[other], blocks_of)
            for other in ("xla", *case.baselines)
            if other in times and other != name
        }
    return row


def lines(row: dict[str, Any]) -> str:
    """Formats a row as the lines of a table."""
    text = []
    for name, path in row["paths"].items():
        head = f"{row['operation'][:24]:24} {row['case'][:32]:32} {row['direction']:8} {name:18}"
        if "failed" in path:
            text.append(f"{head} {path['failed'][:80]}")
            continue
        rates = [f"{value:.2e} {key[:-11]}/s" for key, value in path.items() if key.endswith("_per_second")]
        floor = f"{path['times_floor']:5.1f}x floor" if "times_floor" in path else ""
        ratios = [f"{timing.shown(ratio)} times {baseline}" for baseline, ratio in path["speedup"].items()]
        memory = f"{(path['temporary_bytes'] or 0) / 1e6:9.1f} MB"
        text.append(
            f"{head} {path['seconds'] * 1e3:10.3f} ms {memory} {floor} {' '.join((*rates, *ratios))}".rstrip()
        )
    return "\n".join(text)


def measure_all(
    only: str = "",
    budget: float = float("inf"),
    keep: Callable[[list[dict[str, Any]]], None] = lambda rows: None,
    **options: Any,
) -> list[dict[str, Any]]:
    """Measures and prints all cases that fit into `budget` seconds; `options` are passed to `measure`.

    `keep` is called with all rows so far after each row, so that an interrupted run loses at most one.
    """
    end = time.monotonic() + budget
    rows, longest = [], 0.0
    for case in kernel_cases.chosen(kernel_cases.cases(jax.default_backend()), only):
        for direction in kernel_cases.DIRECTIONS:
            if time.monotonic() + longest > end:
                print(f"budget spent: skipping {case.operation.name} {case.name} and all later cases")
                return rows
            start = time.monotonic()
            rows.append(measure(case, direction, **options))
            longest = max(longest, time.monotonic() - start)
            print(lines(rows[-1]), flush=True)
            keep(rows)
    return rows


def main() -> int:
    """Runs the program with the values of its flags."""
    parser = machine.parser(
        __doc__,
        only=("", "only cases whose operation or name contains this"),
        budget=(float("inf"), "seconds after which no further case is started"),
        blocks=(5, "timing blocks per program"),
        out=("results/kernels/{}.json", "output file, with {} for the chip; empty to write none"),
    )
    arguments = parser.parse_args()
    found = kernel_cases.chosen(kernel_cases.cases(jax.default_backend()), arguments.only)
    kernel_cases.check_only(parser, arguments.only, found)
    record: dict[str, Any] = {**machine.describe(), "command": "python -m benchmarks.kernels"}
    print(json.dumps(record))
    out = arguments.out.format(record["chip"].replace(" ", "-"))

    def keep(rows: list[dict[str, Any]]) -> None:
        if out:
            machine.write(Path(out), {**record, "rows": rows})

    measure_all(arguments.only, arguments.budget, keep, blocks=arguments.blocks)
    return 0


if __name__ == "__main__":
    sys.exit(main())
