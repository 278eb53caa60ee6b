"""Measures how long other libraries take compared with ours, as ratios with their spread.

    python -m benchmarks.peers                             # writes results/peers/speed.json and .md
    python -m benchmarks.peers --only=trans --out=         # one subject, or one library: --only=tokamax

The peers are PyTorch (eager and compiled; plain versions of the same architectures with our weights, in
`benchmarks/peers/torch_*.py`), lucidrains' simplicial-attention, tokamax, cuEquivariance, and BoxWorld in
plain Python. All are optional: libraries that are not installed are skipped with a message. Results are
compared before anything is timed; those that differ are reported and not timed, and the exit status is 1.

All libraries run in one process on all cores. Blocks of memory beyond 32 MiB are returned to the system when
they are freed, as in any process that asks for nothing else; with `--keep-blocks=1024` they are kept, as in
our training and exported models (`experiments.runtime.memory`), for all libraries. PyTorch's threads
busy-wait for each other, which makes it disproportionately slow on a machine with other load. The record has
the load before the run.
"""

import sys
import time
from collections.abc import Iterator, Mapping
from typing import Any

import jax

from benchmarks.peers import comparing, libraries, plain_python, program, subjects, table

BUDGET = 720.0
PYTHON = "python"
BOXWORLD = {f"BoxWorld, {name}": name for name in ("bridge", "standard")}
BOXWORLD_SIZE = {"small": (32, 4), "papers": (4096, 100), "accelerator": (4096, 100)}


def select(only: str, names: list[str]) -> tuple[list[str], list[str]]:
    """Returns the subjects and libraries selected by `only`: a library's key, or a part of subjects' names.

    Raises:
        ValueError: `only` matches neither.
    """
    keys = [*libraries.LIBRARIES, PYTHON]
    if only in keys:
        return names, [only]
    return program.named(only, names, keys), keys


def rows(
    names: list[str],
    found: Mapping[str, libraries.Found],
    with_python: bool,
    size: str,
    end: float,
    left: list[str],
    **options: Any,
) -> Iterator[dict[str, Any]]:
    """Yields rows as they are measured; subjects not started before `end` are appended to `left`."""
    made = subjects.subjects(subjects.SIZES[size])
    for name in names:
        if not (with_python if name in BOXWORLD else found):
            continue
        if time.monotonic() > end:
            left.append(name)
            continue
        if name in BOXWORLD:
            yield plain_python.measure(BOXWORLD[name], *BOXWORLD_SIZE[size], **options)
            continue
        subject = made[name]()
        programs = {
            key: program for library in found.values() for key, program in library.programs(subject).items()
        }
        for direction in comparing.DIRECTIONS if programs else ():
            if time.monotonic() > end:
                left.append(f"{name} ({direction})")
                continue
            yield comparing.measure(subject, direction, programs, end=end, **options)


def main() -> int:
    """Measures the selected subjects; returns 1 if any library's results differ, else 0."""
    parser = program.parser(
        __doc__,
        only="a library, or a part of subjects' names",
        budget=BUDGET,
        blocks=3,
        block_seconds=0.25,
        out="results/peers/speed.json",
    )
    arguments = program.parsed(parser)
    size = "small" if arguments.small else "papers" if jax.default_backend() == "cpu" else "accelerator"
    first, *rest = subjects.subjects(subjects.SIZES[size])
    try:
        names, keys = select(arguments.only, [first, *BOXWORLD, *rest])
    except ValueError as error:
        parser.error(str(error))
    others = [key for key in keys if key != PYTHON]
    options = {"blocks": arguments.blocks, "block_seconds": arguments.block_seconds}
    with program.recording(
        "benchmarks.peers", arguments, others, table.page, tolerance=comparing.TOLERANCE
    ) as (record, found, end):
        left = record.fields["not_measured"]
        record.add(rows(names, found, PYTHON in keys, size, end, left, **options))
    return record.status


if __name__ == "__main__":
    sys.exit(main())
