"""Everything that needs an accelerator, in one call and within a budget of seconds, the most valuable first.

    python -m benchmarks.accelerator --budget=540 --out=accelerator

1. device and versions;
2. values and gradients of every kernel there against float64 (`benchmarks.kernel_checks`);
3. their speed against the plain path (`benchmarks.kernels`);
4. training of both agents in BoxWorld (`benchmarks.boxworld_training`): steps a second;
5. training steps of FOLNet Base (`benchmarks.folnet --accelerator`) and of the TP-Transformer
   (`benchmarks.mathematics_training`): tokens a second, utilisation, memory;
6. the long runs of BoxWorld, continued (`benchmarks.boxworld_bursts`): `boxworld/AGENT` replaces that folder
   of `results/boxworld`; those of the preset `modules` (`benchmarks.mathematics_learning`), in the folder
   given by `--runs`, where they are continued;
7. block sizes (`benchmarks.tune_kernels`), into a folder beside the others.

Each part runs in a process of its own, an operation at a time, so that a kernel that hangs or takes its
process down loses only its own rows; every file is complete whenever the budget ends. A table comes last on
standard output. `python -m benchmarks.collect_kernels FOLDER` then carries the folder into `results/` and
into the tables of `kernels/`. Parts 1 to 3 and 7 need nothing but this repository and JAX, the others the
packages of `pyproject.toml`.
"""

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

OPERATIONS = ("two_simplicial_attention", "trans", "trilinear_attention")
SHARES = {
    "checks": 0.15,
    "kernels": 0.35,
    "training": 0.45,
    "folnet": 0.58,
    "mathematics": 0.65,
    "bursts": 0.8,
    "modules": 0.93,
    "tuning": 1.0,
}  # of the budget, when a part must have ended
LEAST = 12.0  # seconds under which a process is not worth starting


class Budget:
    """What is left of the seconds."""

    def __init__(self, seconds: float) -> None:
        """Starts the clock."""
        self.start, self.seconds = time.monotonic(), seconds

    def until(self, share: float) -> float:
        """Seconds until that share of the budget is spent, but enough to do something if there is time."""
        left = self.start + self.seconds - time.monotonic()
        return min(left, max(LEAST, left - (1 - share) * self.seconds))


def part(command: list[str], seconds: float, log: Path) -> str:
    """Runs one part, its output to the log, and tells how it ended."""
    if seconds < LEAST:
        return f"not started: {seconds:.0f} s left"
    start = time.monotonic()
    with log.open("a", encoding="utf-8") as file:
        try:
            done = subprocess.run(
                [sys.executable, "-m", *command], stdout=file, stderr=subprocess.STDOUT, timeout=seconds
            )
            ended = f"exit status {done.returncode}"
        except subprocess.TimeoutExpired:
            ended = f"stopped after {seconds:.0f} s"
    return f"{ended}, {time.monotonic() - start:.0f} s"


def run(budget: Budget, out: Path, runs: Path) -> dict[str, str]:
    """All parts; how each ended, by name.

    Args:
        budget: what there is.
        out: where records go.
        runs: where the runs are kept that are continued from one call to the next.
    """
    ended = {}

    def do(name: str, share: float, command: list[str]) -> None:
        ended[name] = part(command, budget.until(share), out / "log.txt")
        print(f"{name}: {ended[name]}", flush=True)

    for index, operation in enumerate(OPERATIONS):
        share = SHARES["checks"] * (index + 1) / len(OPERATIONS)
        path = out / f"checks_{operation}.json"
        do(f"checks {operation}", share, ["benchmarks.kernel_checks", f"--only={operation}", f"--out={path}"])
    for index, operation in enumerate(OPERATIONS):
        between = SHARES["kernels"] - SHARES["checks"]
        share = SHARES["checks"] + between * (index + 1) / len(OPERATIONS)
        left, path = budget.until(share), out / f"kernels_{operation}.json"
        command = ["benchmarks.kernels", f"--only={operation}", f"--out={path}", f"--budget={left - LEAST}"]
        do(f"kernels {operation}", share, command)
    left, path = budget.until(SHARES["training"]), out / "training.json"
    command = ["benchmarks.boxworld_training", f"--out={path}", f"--budget={left / 2}"]
    do("training", SHARES["training"], command)
    left = budget.until(SHARES["folnet"])
    path = out / "folnet.json"
    do(
        "folnet",
        SHARES["folnet"],
        ["benchmarks.folnet", "--accelerator", f"--out={path}", f"--budget={left / 2}"],
    )
    left, path = budget.until(SHARES["mathematics"]), out / "mathematics.json"
    do(
        "mathematics",
        SHARES["mathematics"],
        ["benchmarks.mathematics_training", f"--out={path}", f"--budget={left / 2}"],
    )
    left = budget.until(SHARES["bursts"])
    command = ["benchmarks.boxworld_bursts", f"--out={out / 'boxworld'}", f"--seconds={left - LEAST}"]
    do("bursts", SHARES["bursts"], command)
    left = budget.until(SHARES["modules"])
    command = ["benchmarks.mathematics_learning", f"--workdir={runs}", f"--out={out / 'modules'}"]
    do("modules", SHARES["modules"], [*command, f"--seconds={left - LEAST}"])
    left = budget.until(SHARES["tuning"])
    command = ["benchmarks.tune_kernels", f"--folder={out / 'tables'}", f"--budget={left - LEAST}"]
    do("tuning", SHARES["tuning"], command)
    return ended


def table(out: Path) -> list[str]:
    """The summary: a line a check that is wrong, a line a measured path."""
    lines = []
    for path in sorted(out.glob("checks_*.json")):
        rows = json.loads(path.read_text(encoding="utf-8"))["rows"]
        lines += [f"{path.stem}: {_count(rows)}"]
        for row in rows:
            if "failed" in row or row.get("holds") is False:
                told = row.get("failed", "") or " ".join(f"{error:.1e}" for error in row["errors"])
                lines.append(f"  WRONG {row['case']} {row['implementation']}: {told}"[:160])
    for path in sorted(out.glob("kernels_*.json")):
        for row in json.loads(path.read_text(encoding="utf-8"))["rows"]:
            for name, measured in row["paths"].items():
                lines.append(_line(row, name, measured))
    if (out / "training.json").exists():
        for row in json.loads((out / "training.json").read_text(encoding="utf-8"))["rows"]:
            rate, ratio = row["steps_per_second"]["median"], row["times_the_authors"]
            lines.append(f"{row['case']:42} {rate:12,.0f} steps/s {ratio:6.1f}x the authors'")
    for name in ("folnet", "mathematics"):
        if (out / f"{name}.json").exists():
            for row in json.loads((out / f"{name}.json").read_text(encoding="utf-8"))["rows"]:
                lines.append(f"{name}: {_training_line(row)}")
    return lines


def _training_line(row: dict[str, Any]) -> str:
    sizes = [f"{row[key]}" for key in ("source", "target") if key in row]
    head = " x ".join([str(row.get("name", row.get("model"))), *sizes])[:60]
    if "tokens_per_second" in row:
        rate = f"{row['tokens_per_second']:12,.0f} tokens/s"
        return f"{head:60} {rate} {100 * row['utilisation']:5.1f} % of the matrix rate"
    if "operations_per_second" in row:
        return f"{head:60} {row['operations_per_second'] / 1e12:12.2f} TFLOP/s"
    return f"{head:60} {row.get('failed', '')[:60]}"


def _count(rows: list[dict[str, Any]]) -> str:
    holds = sum(row.get("holds", False) for row in rows)
    unsupported = sum("unsupported" in row for row in rows)
    return f"{holds} hold, {len(rows) - holds - unsupported} wrong, {unsupported} not supported"


def _line(row: dict[str, Any], name: str, measured: dict[str, Any]) -> str:
    head = f"{row['operation'][:14]:14} {row['case'][:30]:30} {row['direction']:8} {name[:18]:18}"
    if "seconds" not in measured:
        return f"{head} {measured['failed'][:60]}"
    speedup = next(iter(measured["speedup"].values()), None)
    ratio = f"{speedup['median']:6.2f}x" if speedup else ""
    floor = f"{measured['times_floor']:6.1f}x floor" if "times_floor" in measured else ""
    return f"{head} {measured['seconds'] * 1e6:10.1f} us {ratio:8} {floor}".rstrip()


def main() -> int:
    """The program."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--budget", type=float, required=True, help="seconds in all")
    parser.add_argument(
        "--out", type=Path, default=Path("accelerator"), help="a folder, made when it is not there"
    )
    parser.add_argument(
        "--runs", type=Path, help="where runs of `modules` are continued; OUT/runs when nothing is said"
    )
    arguments = parser.parse_args()
    if not arguments.budget >= LEAST:
        parser.error(f"--budget={arguments.budget}: expected at least {LEAST:.0f} seconds")
    budget = Budget(arguments.budget)
    arguments.out.mkdir(parents=True, exist_ok=True)
    if old := sorted(arguments.out.glob("*_*.json")):
        parser.error(f"--out={arguments.out} has records of another run in it, such as {old[0].name}")
    here = part(["benchmarks.machine"], budget.until(1), arguments.out / "machine.json")
    print((arguments.out / "machine.json").read_text(encoding="utf-8"), f"({here})", flush=True)
    ended = run(budget, arguments.out, arguments.runs or arguments.out / "runs")
    (arguments.out / "parts.json").write_text(json.dumps(ended, indent=1) + "\n", encoding="utf-8")
    text = "\n".join(table(arguments.out))
    (arguments.out / "summary.txt").write_text(text + "\n", encoding="utf-8")
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
