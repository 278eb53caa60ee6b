"""Everything that needs an accelerator, in one call and within a budget of seconds, the most valuable first.

    python -m benchmarks.accelerator --budget=540 --out=accelerator --runs=runs/accelerator

1. device and versions;
2. values and gradients of every kernel there against float64 (`benchmarks.kernel_checks`);
3. their speed against the plain path (`benchmarks.kernels`);
4. throughput, utilisation and peak memory of each paper's training step (`benchmarks.training`): both agents
   in BoxWorld, FOLNet Base, the TP-Transformer, kinship, linear logic RNNs;
5. block sizes (`benchmarks.tune_kernels`);
6. the long runs of BoxWorld, continued from `--runs` or `results/` (`benchmarks.bursts`).

Each part runs in a process of its own, an operation at a time, so that a kernel that hangs or takes its
process down loses only its own rows. A part has its share of the seconds that are left; what it leaves over
goes to those after it. Its records are whole whenever it is ended; a long run saves before. What lacks a
package, data or time is told as such. A table comes last on standard output and is in `summary.txt`.
`python -m benchmarks.collect FOLDER` then carries the folder into `results/` and into the tables of
`kernels/`. Parts 1 to 3 and 5 need nothing but this repository and JAX (0.11 or later), the others also
packages of `pyproject.toml`, but none that only draws or logs.
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

OPERATIONS = ("two_simplicial_attention", "trans", "trilinear_attention")
KERNELS = ("jax", "numpy")
TRAINING = (*KERNELS, "absl", "chex", "flax", "jaxtyping", "optax", "orbax", "safetensors", "scipy")
FOLNET = (*TRAINING, "tokenizers")
LEAST = 12.0  # seconds under which a process is not worth starting
GRACE = 10.0  # between being asked to end and being ended
SUMMARY = 1.0  # seconds kept for the table


@dataclasses.dataclass(frozen=True)
class Part:
    """Something to be done in a process of its own."""

    name: str  # in the table
    share: float  # of the seconds, against the shares of the other parts that remain
    command: Callable[[float], list[str]]  # from the seconds it has to the module and its flags
    needs: tuple[str, ...] = TRAINING  # packages
    least: float = LEAST  # seconds under which it is not begun
    grace: float = 0.0  # seconds it needs to save when it is asked to end

    def missing(self) -> str:
        """Why it cannot run here; "" if it can."""
        absent = [name for name in self.needs if importlib.util.find_spec(name) is None]
        return f"needs {', '.join(absent)}" if absent else ""


def parts(out: Path, runs: Path) -> list[Part]:
    """Returns all parts, the most valuable first, with folders for records and for long runs."""

    def checks(operation: str) -> Callable[[float], list[str]]:
        file = out / f"checks_{operation}.json"
        return lambda seconds: ["benchmarks.kernel_checks", f"--only={operation}", f"--out={file}"]

    def speed(operation: str) -> Callable[[float], list[str]]:
        file, command = out / f"kernels_{operation}.json", ["benchmarks.kernels", f"--only={operation}"]
        return lambda seconds: [*command, f"--out={file}", f"--budget={seconds - LEAST / 2}"]

    def training(experiment: str, share: float, needs: tuple[str, ...] = TRAINING) -> Part:
        flags = [f"--only={experiment}", f"--out={out / f'training_{experiment}.json'}"]

        def command(seconds: float) -> list[str]:
            # A case that is begun at half of the time, compiled and measured, should end within it.
            return ["benchmarks.training", *flags, f"--budget={seconds / 2}"]

        return Part(f"training {experiment}", share, command, needs)

    def long(*command: str) -> Callable[[float], list[str]]:
        return lambda seconds: [*command, f"--seconds={seconds - GRACE - LEAST / 2}"]

    tune = ["benchmarks.tune_kernels", f"--folder={out / 'tables'}"]
    bursts = ("benchmarks.bursts", f"--runs={runs}", f"--out={out}")
    return [
        *(Part(f"checks {name}", 5, checks(name), KERNELS) for name in OPERATIONS),
        *(Part(f"kernels {name}", 6, speed(name), KERNELS) for name in OPERATIONS),
        training("boxworld", 8),
        training("folnet_pretrain", 9, FOLNET),
        training("mathematics", 7),
        training("kinship", 4, FOLNET),
        training("llrnn", 4),
        Part("block sizes", 5, lambda seconds: [*tune, f"--budget={seconds - LEAST / 2}"], KERNELS),
        # Besides training it compiles, measures and saves.
        Part("boxworld", 30, long(*bursts), FOLNET, least=100.0, grace=GRACE),
    ]


class Budget:
    """What is left of the seconds."""

    def __init__(self, seconds: float) -> None:
        """Starts the clock."""
        self.end = time.monotonic() + seconds - SUMMARY

    def left(self) -> float:
        """Seconds."""
        return self.end - time.monotonic()

    def of(self, part: Part, others: list[Part]) -> float:
        """Seconds for a part: its share of what is left, but enough to do something if there is time.

        Of the others that can run, those that would not get what they need are left out, the last ones
        first; should more be left than was thought, they are in again.
        """
        left, others = self.left(), list(others)
        while True:
            second = left / (part.share + sum(other.share for other in others))
            poor = [other for other in others if second * other.share < other.least]
            if not poor:
                return min(left, max(part.least, second * part.share))
            others.remove(poor[-1])


def run(command: list[str], seconds: float, log: Path, grace: float = 0.0) -> str:
    """Runs one part, its output added to the log, and says how it ended.

    After so many seconds it is ended with all that it started; `grace` seconds before, it is asked to end.
    """
    start = time.monotonic()
    with log.open("a", encoding="utf-8") as file:
        file.write(f"\n== python -m {' '.join(command)}\n")
        file.flush()
        process = subprocess.Popen(
            [sys.executable, "-m", *command],
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # so that what it starts ends with it
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
        return "asked to end when its time was over"
    except subprocess.TimeoutExpired:
        return "ended when its time was over"


def _signal(process: subprocess.Popen, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)


def run_all(budget: Budget, chosen: list[Part], out: Path) -> dict[str, str]:
    """Runs the parts and tells how each ended, by name; `parts.json` says so all along."""
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
    """The program."""
    parser = machine.parser(
        __doc__,
        budget=(0.0, "seconds in all"),
        out=(Path("accelerator"), "a new or empty folder"),
        runs=("", "where long runs are kept and continued (default: OUT/runs)"),
        only=("", "only parts whose name has one of these, between commas"),
    )
    arguments = parser.parse_args()
    out = arguments.out
    if not arguments.budget >= LEAST:
        parser.error(f"--budget={arguments.budget}: expected at least {LEAST:.0f} seconds")
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        parser.error(f"--out={out} is not an empty folder; choose another")
    everything = parts(out, Path(arguments.runs or out / "runs"))
    words = arguments.only.split(",")
    chosen = [part for part in everything if any(word in part.name for word in words)]
    if not chosen:
        names = ", ".join(part.name for part in everything)
        parser.error(f"--only={arguments.only} names no part of: {names}")
    budget = Budget(arguments.budget)
    signal.signal(signal.SIGTERM, _end)  # the part under way is then ended too
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
