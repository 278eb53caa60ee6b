"""Ours beside other libraries that do the same, in one run: ratios with their spread.

    python -m benchmarks.peers                             # results/peers/speed.json and .md
    python -m benchmarks.peers --only=trans --out=         # a subject, or all of a library: --only=tokamax

Compared are PyTorch (eager and compiled; the same architectures with our weights, written plainly in
`benchmarks/peers/torch_*.py`), lucidrains' simplicial-attention, tokamax, cuEquivariance and BoxWorld in
plain Python. Each is optional: what is not installed is skipped with a word. Results must be equal before
anything is timed; what is not equal is told, not timed, and ends the program with status 1.

Others use all cores as ours do. PyTorch's threads wait for each other actively: on a machine that is busy
otherwise it is slowed down out of all proportion. The load before the run is in the record.
"""

import os
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # the others need memory of a GPU too

import jax

from benchmarks import machine, timing
from benchmarks.peers import comparing, libraries, plain_python, subjects, table

BUDGET = 720.0
PYTHON = "python"
BOXWORLD = {f"BoxWorld, {name}": name for name in ("bridge", "standard")}
BOXWORLD_SIZE = {"small": (32, 4), "papers": (4096, 100), "accelerator": (4096, 100)}


def select(only: str, names: list[str]) -> tuple[list[str], list[str]]:
    """The subjects and the libraries that `only` asks for: a library's key, or a part of subjects' names.

    Raises:
        ValueError: nothing is called so.
    """
    keys = [*libraries.LIBRARIES, PYTHON]
    if only in keys:
        return names, [only]
    chosen = [name for name in names if only in name]
    if not chosen:
        raise ValueError(
            f"--only={only} is neither a library ({', '.join(keys)}) nor part of a subject's name "
            f"({'; '.join(names)})"
        )
    return chosen, keys


def rows(
    names: list[str],
    found: Mapping[str, libraries.Found],
    with_python: bool,
    size: str,
    end: float,
    left: list[str],
    **options: Any,
) -> Iterator[dict[str, Any]]:
    """Rows as they are found; subjects whose turn comes after the `end` are put into `left`."""
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
    """The program."""
    parser = machine.parser(
        __doc__,
        only=("", "a part of subjects' names, or a library"),
        budget=(BUDGET, "seconds after which nothing is begun"),
        blocks=(3, "blocks of each program"),
        out=("results/peers/speed.json", "the record, and a page of the same name beside it; empty: nowhere"),
    )
    parser.add_argument("--block-seconds", type=float, default=0.25, help="about how long a block is")
    parser.add_argument("--small", action="store_true", help="tiny sizes, to see that everything runs")
    arguments = parser.parse_args()
    if arguments.blocks < 1 or arguments.block_seconds <= 0:
        parser.error("--blocks must be at least 1 and --block-seconds positive")
    size = "small" if arguments.small else "papers" if jax.default_backend() == "cpu" else "accelerator"
    first, *rest = subjects.subjects(subjects.SIZES[size])
    try:
        names, keys = select(arguments.only, [first, *BOXWORLD, *rest])
    except ValueError as error:
        parser.error(str(error))
    end = time.monotonic() + arguments.budget
    jax.config.update("jax_default_matmul_precision", "highest")  # float32 is float32, on GPUs too
    load = round(os.getloadavg()[0], 2)
    with tempfile.TemporaryDirectory() as cache:
        os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", cache)  # compile as a first user does
        found = {key: libraries.find(key) for key in keys if key != PYTHON}
        record: dict[str, Any] = {
            **timing.where_and_when(),
            "command": " ".join(["python -m benchmarks.peers", *sys.argv[1:]]),
            "threads": os.cpu_count(),
            "load": load,
            "tolerance": comparing.TOLERANCE,
            "peers": {libraries.LIBRARIES[key].title: dict(library.about) for key, library in found.items()},
            "rows": [],
            "not_measured": [],
        }
        for name, about in record["peers"].items():
            print(f"{name}: {'; '.join(f'{key} {value}' for key, value in about.items())}", flush=True)
        present = {key: library for key, library in found.items() if "absent" not in library.about}
        options = {"blocks": arguments.blocks, "block_seconds": arguments.block_seconds}
        for row in rows(names, present, PYTHON in keys, size, end, record["not_measured"], **options):
            print(comparing.told(row), flush=True)
            record["rows"].append(row)
            _write(arguments.out, record)
        _write(arguments.out, record)
    if record["not_measured"]:
        print(f"the budget ended before: {', '.join(record['not_measured'])}")
    return int(any("differs" in peer for row in record["rows"] for peer in row["peers"].values()))


def _write(out: str, record: Mapping[str, Any]) -> None:
    """The record and its page, whole whenever the program is ended."""
    if out:
        machine.write(Path(out), record)
        machine.write_text(Path(out).with_suffix(".md"), table.page(record))


if __name__ == "__main__":
    sys.exit(main())
