"""Measures how long whole training steps take in PyTorch compared with ours, as ratios with their spread.

    python -m benchmarks.peers.training            # writes results/peers/training.json and .md
    python -m benchmarks.peers.training --only=agent --out=

A step takes the next batch from the host and computes the gradient and the optimizer's update: ours as runs
of the experiments do, PyTorch's (eager and compiled) as its users would write it, in
`benchmarks/peers/torch_*.py`. Models, batches and optimizers are in `benchmarks/peers/training/subjects.py`.
All train from the same weights on the same batches first. Those whose losses differ are reported and not
timed, and the exit status is 1.

All programs run in one process on all cores, which keeps large blocks of memory between calls, as our runs
do; see `benchmarks.peers` about `--keep-blocks` and load. The whole run needs about 12 GB of memory, and on
two idle cores most of an hour, much of it for compilation.
"""

import sys
import time
from collections.abc import Iterator, Mapping
from typing import Any

from benchmarks import steps
from benchmarks.peers import libraries, program
from benchmarks.peers.training import measuring, subjects, table
from experiments.runtime import memory

BUDGET = 3600.0


def rows(
    names: list[str],
    found: Mapping[str, libraries.Found],
    sizes: subjects.Sizes,
    end: float,
    left: list[str],
    **options: Any,
) -> Iterator[dict[str, Any]]:
    """Yields rows as they are measured; subjects not started before `end` are appended to `left`."""
    made = subjects.subjects(sizes)
    for name in names if found else []:
        if time.monotonic() > end:
            left.append(name)
            continue
        subject = made[name]()
        programs: dict[str, Any] = {}
        for library in found.values():
            programs |= library.programs(subject)
        yield measuring.measure(subject, programs, end=end, **options)


def main() -> int:
    """Measures the selected subjects; returns 1 if any library's training differs, else 0."""
    parser = program.parser(
        __doc__,
        only="a part of subjects' names",
        budget=BUDGET,
        blocks=5,
        block_seconds=3.0,
        out="results/peers/training.json",
        keep_blocks=memory.DEFAULT,
    )
    arguments = program.parsed(parser)
    sizes = subjects.SIZES["small" if arguments.small else "papers"]
    every = list(subjects.subjects(sizes))
    try:
        names = program.named(arguments.only, every)
    except ValueError as error:
        parser.error(str(error))
    options = {"blocks": arguments.blocks, "block_seconds": arguments.block_seconds}
    side = "benchmarks.peers.training.torch_steps"
    with program.recording(
        "benchmarks.peers.training",
        arguments,
        ["torch"],
        table.page,
        side=side,
        tolerance=measuring.TOLERANCE,
        margin=measuring.MARGIN,
        geometric_means={},
    ) as (record, found, end):
        rate = steps.matrix_rate(256 if arguments.small else 0, 0.25, "float32")
        record.write(operations_per_second=rate)
        left = record.fields["not_measured"]
        record.add(rows(names, found, sizes, end, left, rate=rate, **options))
        if names == every and not left:
            record.write(geometric_means=measuring.geometric_means(record.fields["rows"]))
    return record.status


if __name__ == "__main__":
    sys.exit(main())
