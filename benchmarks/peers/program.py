"""What the programs that compare libraries have in common: flags, the libraries found, and the record."""

import argparse
import contextlib
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # other libraries need GPU memory, too

import jax

from benchmarks import machine, timing
from benchmarks.peers import comparing, libraries
from experiments.runtime import memory
from logic_zoo.writing import write_whole


def parser(
    text: str | None,
    *,
    only: str,
    budget: float,
    blocks: int,
    block_seconds: float,
    out: str,
    keep_blocks: int = 0,
) -> argparse.ArgumentParser:
    """Returns the parser of a program described by `text`; `only` says what `--only` selects.

    The other arguments are defaults of flags.
    """
    found = machine.parser(
        text,
        only=("", only),
        budget=(budget, "seconds after which no measurement is started"),
        blocks=(blocks, "number of timed blocks per program"),
        out=(out, "file of the record; a .md page goes next to it; empty writes none"),
    )
    found.add_argument(
        "--block-seconds", type=float, default=block_seconds, help="approximate seconds per block"
    )
    found.add_argument(
        "--keep-blocks",
        type=int,
        default=keep_blocks,
        help="on CPUs, keep freed blocks of memory of up to so many MiB between calls; 0: keep none",
    )
    found.add_argument("--small", action="store_true", help="tiny sizes, to check that everything runs")
    return found


def parsed(parser: argparse.ArgumentParser) -> argparse.Namespace:
    """Returns the arguments of this process, and `kept_mib`: the limit of the blocks of memory that are kept.

    Ends the process with a message if an argument is out of range.
    """
    arguments = parser.parse_args()
    if arguments.blocks < 1:
        parser.error(f"--blocks: got {arguments.blocks}, expected at least 1")
    if arguments.block_seconds <= 0:
        parser.error(f"--block-seconds: got {arguments.block_seconds}, expected a positive number")
    try:
        kept = memory.keep_large_blocks(arguments.keep_blocks)
    except ValueError as error:
        parser.error(str(error))
    arguments.kept_mib = arguments.keep_blocks if kept else 0
    return arguments


def named(only: str, names: list[str], keys: Iterable[str] = ()) -> list[str]:
    """Returns the names that contain `only`.

    Raises:
        ValueError: there is none; the message lists the names and the `keys` that `only` could also be.
    """
    chosen = [name for name in names if only in name]
    if not chosen:
        known = f"a library ({', '.join(keys)}) or " if keys else ""
        raise ValueError(
            f"--only: got {only!r}, expected {known}a part of a subject's name ({'; '.join(names)})"
        )
    return chosen


class Record:
    """A record that is written after every row, with its page, so that an interrupted run loses none."""

    def __init__(self, out: str, page: Callable[[Mapping[str, Any]], str], head: Mapping[str, Any]):
        self.out, self.page, self.fields = out, page, {**head, "rows": [], "not_measured": []}

    def write(self, **fields: Any) -> None:
        """Adds fields, and writes the record to `out`, "" for none, and its page."""
        self.fields |= fields
        if self.out:
            machine.write(Path(self.out), self.fields)
            write_whole(Path(self.out).with_suffix(".md"), self.page(self.fields))

    def add(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Prints rows as they are measured and writes them; at the end says what was not measured."""
        for row in rows:
            print(comparing.summary(row), flush=True)
            self.fields["rows"].append(row)
            self.write()
        self.write()
        if self.fields["not_measured"]:
            print(f"not measured, budget exhausted: {', '.join(self.fields['not_measured'])}")

    @property
    def status(self) -> int:
        """The exit status: 1 if any library's results differ, else 0."""
        peers = (peer for row in self.fields["rows"] for peer in row["peers"].values())
        return int(any("differs" in peer for peer in peers))


@contextlib.contextmanager
def recording(
    name: str,
    arguments: argparse.Namespace,
    keys: Iterable[str],
    page: Callable[[Mapping[str, Any]], str],
    *,
    side: str | None = None,
    **more: Any,
) -> Iterator[tuple[Record, dict[str, libraries.Found], float]]:
    """Finds libraries and begins the record of a program.

    Args:
        name: of the program, as `python -m` takes it.
        arguments: its flags.
        keys: of the libraries.
        page: formats the record in Markdown.
        side: see `libraries.find`.
        more: further fields of the record.

    Yields:
        The record, the installed libraries by key, and the time of `time.monotonic` at which the budget is
        exhausted.

    Raises:
        SystemExit: a library is missing, and the file to write to has a record.
    """
    end = time.monotonic() + arguments.budget
    jax.config.update("jax_default_matmul_precision", "highest")  # full float32 on GPUs, too
    load = round(os.getloadavg()[0], 2)
    with tempfile.TemporaryDirectory() as cache:
        os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", cache)  # start with an empty cache, like a new user
        found = {key: libraries.find(key, side) for key in keys}
        peers = {libraries.LIBRARIES[key].title: dict(library.about) for key, library in found.items()}
        head = {
            **timing.where_and_when(),
            "command": " ".join([f"python -m {name}", *sys.argv[1:]]),
            "threads": os.cpu_count(),
            "load": load,
            "kept_mib": arguments.kept_mib,
            "peers": peers,
            **more,
        }
        for title, about in peers.items():
            print(f"{title}: {'; '.join(f'{key} {value}' for key, value in about.items())}", flush=True)
        missing = [title for title, about in peers.items() if "absent" in about]
        if missing and arguments.out and Path(arguments.out).exists():
            sys.exit(
                f"error: --out: got {arguments.out}, which would lose its rows of {', '.join(missing)}; "
                "expected another file, or these libraries: the extra 'peers' installs them"
            )
        present = {key: library for key, library in found.items() if "absent" not in library.about}
        yield Record(arguments.out, page, head), present, end
