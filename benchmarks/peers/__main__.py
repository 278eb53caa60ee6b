"""Measures how long other libraries take compared with ours, as ratios with their spread.

    python -m benchmarks.peers                             # writes results/peers/speed.json and .md
    python -m benchmarks.peers --only=trans --out=         # one subject, or one library: --only=tokamax

The peers are PyTorch (eager and compiled; plain versions of the same architectures with our weights, in
`benchmarks/peers/torch_*.py`), lucidrains' simplicial-attention, tokamax, cuEquivariance, and BoxWorld in
plain Python. All are optional: libraries that are not installed are skipped with a message. Results are
compared before anything is timed; those that differ are reported and not timed, and the exit status is 1.

All libraries run in one process on all cores. On CPUs it keeps large blocks of memory between calls, as our
training and exported models do (`experiments.runtime.memory`); with `--keep-blocks=0` every library pays for
fresh pages at each call. PyTorch's threads busy-wait for each other, which makes it disproportionately slow
on a machine with other load. The record has the load before the run.
"""

import os
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # other libraries need GPU memory, too

import jax

from benchmarks import machine, timing
from benchmarks.peers import comparing, libraries, plain_python, subjects, table
from experiments.runtime import memory

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
    chosen = [name for name in names if only in name]
    if not chosen:
        raise ValueError(
            f"--only: got {only!r}, expected a library ({', '.join(keys)}) or a part of a subject's name "
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
    parser = machine.parser(
        __doc__,
        only=("", "a library, or a part of subjects' names"),
        budget=(BUDGET, "seconds after which no measurement is started"),
        blocks=(3, "number of timed blocks per program"),
        out=("results/peers/speed.json", "file of the record; a .md page goes next to it; empty writes none"),
    )
    parser.add_argument("--block-seconds", type=float, default=0.25, help="approximate seconds per block")
    parser.add_argument(
        "--keep-blocks",
        type=int,
        default=memory.DEFAULT if jax.default_backend() == "cpu" else 0,
        help="keep freed blocks of memory of up to so many MiB between calls; 0: keep none",
    )
    parser.add_argument("--small", action="store_true", help="tiny sizes, to check that everything runs")
    arguments = parser.parse_args()
    if arguments.blocks < 1:
        parser.error(f"--blocks: got {arguments.blocks}, expected at least 1")
    if arguments.block_seconds <= 0:
        parser.error(f"--block-seconds: got {arguments.block_seconds}, expected a positive number")
    size = "small" if arguments.small else "papers" if jax.default_backend() == "cpu" else "accelerator"
    first, *rest = subjects.subjects(subjects.SIZES[size])
    try:
        names, keys = select(arguments.only, [first, *BOXWORLD, *rest])
        kept = memory.keep_large_blocks(arguments.keep_blocks)
    except ValueError as error:
        parser.error(str(error))
    end = time.monotonic() + arguments.budget
    jax.config.update("jax_default_matmul_precision", "highest")  # full float32 on GPUs, too
    load = round(os.getloadavg()[0], 2)
    with tempfile.TemporaryDirectory() as cache:
        os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", cache)  # start with an empty cache, like a new user
        found = {key: libraries.find(key) for key in keys if key != PYTHON}
        record: dict[str, Any] = {
            **timing.where_and_when(),
            "command": " ".join(["python -m benchmarks.peers", *sys.argv[1:]]),
            "threads": os.cpu_count(),
            "load": load,
            "kept_mib": arguments.keep_blocks if kept else 0,
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
            print(comparing.summary(row), flush=True)
            record["rows"].append(row)
            _write(arguments.out, record)
        _write(arguments.out, record)
    if record["not_measured"]:
        print(f"not measured, budget exhausted: {', '.join(record['not_measured'])}")
    return int(any("differs" in peer for row in record["rows"] for peer in row["peers"].values()))


def _write(out: str, record: Mapping[str, Any]) -> None:
    """Writes the record and its page atomically, so that they are complete if the program is killed."""
    if out:
        machine.write(Path(out), record)
        machine.write_text(Path(out).with_suffix(".md"), table.page(record))


if __name__ == "__main__":
    sys.exit(main())
