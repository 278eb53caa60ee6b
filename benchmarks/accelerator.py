"""Runs all measurements that need an accelerator within a budget of seconds, the most valuable first.

    python -m benchmarks.accelerator --budget=540 --out=accelerator --runs=runs/accelerator

1. device and versions;
2. values and gradients of every kernel, compared with float64, and their speed, compared with the plain path
   (`benchmarks.side_by_side`);
3. throughput, utilisation and peak memory of each paper's training step (`benchmarks.training`): both agents
   in BoxWorld, FOLNet Base, the TP-Transformer, kinship, linear logic RNNs;
4. block sizes (`benchmarks.tune_kernels`);
5. the long runs of BoxWorld, continued from `--runs` or `results/` (`benchmarks.bursts`).

Each part runs in a process of its own, and so does each case of a kernel: one that hangs or crashes loses
only its own rows. A part gets its share of the remaining seconds; seconds that it does not use go to later
parts. Records are complete whenever a part is stopped; a long run saves first. A part without its packages or
enough time is reported as not started. A table is printed at the end and saved as `summary.txt`.
`python -m benchmarks.collect FOLDER` then copies the records into `results/` and the tables of `kernels/`.
Parts 1, 2 and 4 need only this repository and JAX (0.11 or later), the others also packages of
`pyproject.toml`, except those for figures and logging.
"""

import contextlib
import dataclasses
import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from benchmarks import accelerator_summary, machine

KERNELS = ("jax", "jaxtyping", "numpy")
TRAINING = (*KERNELS, "absl", "chex", "flax", "optax", "orbax", "safetensors", "scipy")
FOLNET = (*TRAINING, "tokenizers")
LEAST = 12.0  # minimum seconds for starting a process
GRACE = 10.0  # seconds between the request to stop and the kill
SUMMARY = 1.0  # seconds reserved for the table


@dataclasses.dataclass(frozen=True)
class Part:
    """A measurement in a process of its own."""

    name: str  # the name in the table
    share: float  # the share of the remaining seconds, relative to the other parts that remain
    command: Callable[[float], list[str]]  # maps the seconds of the part to the module and its flags
    needs: tuple[str, ...] = TRAINING  # required packages
    least: float = LEAST  # minimum seconds for starting the part
    grace: float = 0.0  # seconds for saving after the request to stop

    def missing(self) -> str:
        """Returns why the part cannot run on this machine; "" if it can."""
        absent = [name for name in self.needs if importlib.util.find_spec(name) is None]
        return f"needs {', '.join(absent)}" if absent else ""


def parts(out: Path, runs: Path) -> list[Part]:
    """Returns all parts, the most valuable first, with folders for records and for long runs."""

    def training(experiment: str, share: float, needs: tuple[str, ...] = TRAINING) -> Part:
        flags = [f"--only={experiment}", f"--out={out / f'training_{experiment}.json'}"]

        def command(seconds: float) -> list[str]:
            # A case that starts within the first half should be compiled and measured in time.
            return ["benchmarks.training", *flags, f"--budget={seconds / 2}"]

        return Part(f"training {experiment}", share, command, needs)

    def long(*command: str) -> Callable[[float], list[str]]:
        return lambda seconds: [*command, f"--seconds={seconds - GRACE - LEAST / 2}"]

    kernels = ["benchmarks.side_by_side", f"--out={out}"]
    tune = ["benchmarks.tune_kernels", f"--folder={out / 'tables'}"]
    bursts = ("benchmarks.bursts", f"--runs={runs}", f"--out={out}")
    return [
        Part("kernels", 33, lambda seconds: [*kernels, f"--seconds={seconds - LEAST / 2}"], KERNELS),
        training("boxworld", 8),
        training("folnet_pretrain", 9, FOLNET),
        training("mathematics", 7),
        training("kinship", 4, FOLNET),
        training("llrnn", 4),
        Part("block sizes", 5, lambda seconds: [*tune, f"--budget={seconds - LEAST / 2}"], KERNELS),
        # Besides training, this part compiles, evaluates and saves.
        Part("boxworld", 30, long(*bursts), FOLNET, least=100.0, grace=GRACE),
    ]


class Budget:
    """The remaining seconds of a measurement."""

    def __init__(self, seconds: float) -> None:
        """Starts the clock, with `SUMMARY` seconds reserved."""
        self.end = time.monotonic() + seconds - SUMMARY

    def left(self) -> float:
        """Returns the remaining seconds."""
        return self.end - time.monotonic()

    def of(self, part: Part, others: list[Part]) -> float:
        """Returns the seconds for a part: its share of the remaining time, but at least its minimum.

        Other parts that would get less than their minimum do not count, starting from the last; a later call
        counts them again if more time remains than expected.
        """
        left, others = self.left(), list(others)
        while True:
            second = left / (part.share + sum(other.share for other in others))
            poor = [other for other in others if second * other.share < other.least]
            if not poor:
                return min(left, max(part.least, second * part.share))
            others.remove(poor[-1])


def run(command: list[str], seconds: float, log: Path, grace: float = 0.0) -> str:
    """Runs one part, appends its output to the log, and returns how it ended.

    After `seconds` the part is killed with all its child processes; `grace` seconds earlier it is asked to
    stop.
    """
    start = time.monotonic()
    with log.open("a", encoding="utf-8") as file:
        file.write(f"\n== python -m {' '.join(command)}\n")
        file.flush()
        process = subprocess.Popen(
            [sys.executable, "-m", *command],
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # so that its child processes can be killed with it
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
        try:
            ended = _wait(process, seconds, grace)
        finally:
            _signal(process, signal.SIGKILL)
            process.wait()
    return f"{ended}, {time.monotonic() - start:.0f} s"


def _wait(process: subprocess.Popen, seconds: float, grace: float) -> str:
    try:
        process.wait(seconds - grace)
        return "done" if process.returncode == 0 else f"exit status {process.returncode}"
    except subprocess.TimeoutExpired:
        _signal(process, signal.SIGTERM)
    try:
        process.wait(grace)
        return "stopped when its time was over"
    except subprocess.TimeoutExpired:
        return "killed when its time was over"


def _signal(process: subprocess.Popen, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)


def run_all(budget: Budget, chosen: list[Part], out: Path) -> dict[str, str]:
    """Runs the parts and returns how each ended, by name; `parts.json` is updated after every part."""
    reasons = {part.name: part.missing() for part in chosen}
    able = [part for part in chosen if not reasons[part.name]]
    ended: dict[str, str] = {}
    for part in chosen:
        if reasons[part.name]:
            ended[part.name] = f"not started: {reasons[part.name]}"
        else:
            able = able[1:]
            seconds = budget.of(part, able)
            if seconds < part.least:
                ended[part.name] = f"not started: {max(0.0, seconds):.0f} s left, needs {part.least:.0f}"
            else:
                ended[part.name] = run(part.command(seconds), seconds, out / "log.txt", part.grace)
        print(f"{part.name}: {ended[part.name]}", flush=True)
        (out / "parts.json").write_text(json.dumps(ended, indent=1) + "\n", encoding="utf-8")
    return ended


def _end(number: int, frame: object) -> NoReturn:
    sys.exit(128 + number)


def main() -> int:
    """Runs the program and returns its exit status."""
    parser = machine.parser(
        __doc__,
        budget=(0.0, "total seconds"),
        out=(Path("accelerator"), "a new or empty folder"),
        runs=("", "folder of the long runs, which are continued (default: OUT/runs)"),
        only=("", "only parts whose name contains one of these texts, separated by commas"),
    )
    arguments = parser.parse_args()
    out = arguments.out
    if not arguments.budget >= LEAST:
        parser.error(f"--budget: got {arguments.budget}, expected at least {LEAST:.0f} seconds")
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        parser.error(f"--out: got {out}, expected a new or empty folder")
    everything = parts(out, Path(arguments.runs or out / "runs"))
    words = arguments.only.split(",")
    chosen = [part for part in everything if any(word in part.name for word in words)]
    if not chosen:
        names = ", ".join(part.name for part in everything)
        parser.error(f"--only: got {arguments.only!r}, expected text in one of {names}")
    budget = Budget(arguments.budget)
    signal.signal(signal.SIGTERM, _end)  # also kills the current part
    out.mkdir(parents=True, exist_ok=True)
    here = run(["benchmarks.machine", f"--out={out / 'machine.json'}"], budget.left(), out / "log.txt")
    print((out / "log.txt").read_text(encoding="utf-8").split("\n", 2)[-1], f"({here})", flush=True)
    ended = run_all(budget, chosen, out)
    text = "\n".join(accelerator_summary.lines(out, ended))
    (out / "summary.txt").write_text(text + "\n", encoding="utf-8")
    print(f"\n{text}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
