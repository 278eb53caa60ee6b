"""Kills experiments at random moments, restarts them until they end, and checks that nothing differs.

    python -m benchmarks.soak [--kills=54] [--only=llrnn,kinship] [--seed=0]

Each experiment first runs twice without interruption. The second run shows that the experiment is
reproducible, and how long it takes with its programs in JAX's compilation cache. Then a run is killed, by
SIGKILL or every sixth time by SIGTERM, restarted with the same command, killed again, and so on. A run that
reaches its end is compared, and the next one starts, until the experiment has had its share of kills. There
are three kinds of moments, in turn: any moment; any moment between the creation of the lock and the summary,
which excludes imports and figures; and as soon as a checkpoint is being written.

A finished run is compared with the uninterrupted one by the SHA-256 of its parameters, by that of its last
checkpoint (optimizer, random keys, environments), and by all its files without clock readings. Figures are
not compared, since some show seconds. The record is written to `--out`, with a table as Markdown next to it.
"""

import collections
import hashlib
import json
import os
import random
import re
import signal
import subprocess
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
from absl import app, flags
from orbax.checkpoint import v1 as ocp

from benchmarks import launching, machine
from benchmarks.reliability import subjects
from experiments.runtime import metrics
from experiments.runtime.workdir import params_sha256, surroundings

MOMENTS = ("anywhere", "at work", "saving")
TERM_EVERY = 6
CLOCKS = ("train_seconds", "compile_seconds", "wall_seconds", "commit")
"""Fields that may differ between repeated runs; `commit` gets "-dirty" while a file is being edited."""
PICTURES = (".png", ".gif", ".mp4")
LONGEST = 900.0
"""Seconds after which a run counts as hanging."""


def fingerprint(workdir: Path) -> dict[str, str]:
    """Returns hashes of the parameters, the last checkpoint and all files of a finished run.

    Clock readings are excluded.

    Raises:
        ValueError: the run is not finished.
    """
    summary = workdir / "summary.json"
    if not summary.exists():
        raise ValueError(f"{workdir}: got no summary.json, expected a finished run")
    found = {"parameters": json.loads(summary.read_text(encoding="utf-8"))["params_sha256"]}
    folder = workdir / "checkpoints"
    if saved := [int(path.name) for path in folder.glob("*") if path.name.isdigit()]:
        found["checkpoint"] = f"{max(saved)} {_state_sha256(folder / str(max(saved)))}"
    for path in sorted(workdir.rglob("*")):
        name = path.relative_to(workdir)
        if name.parts[0] == "checkpoints" or path.suffix in PICTURES or path.name == ".lock" or path.is_dir():
            continue
        found[str(name)] = hashlib.sha256(_without_clocks(path)).hexdigest()
    return found


def _state_sha256(path: Path) -> str:
    with warnings.catch_warnings(action="ignore"):  # about restoring the sharding of the saved arrays
        state = ocp.load(str(path))

    def words(leaf: Any) -> Any:
        is_key = jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)
        return jax.random.key_data(leaf) if is_key else leaf

    return params_sha256(jax.tree.map(words, state))


def _without_clocks(path: Path) -> bytes:
    """Returns the bytes of a file; JSON without the fields in `CLOCKS`."""
    content = path.read_bytes()
    if path.suffix not in (".json", ".jsonl"):
        return content
    parts = content.splitlines() if path.suffix == ".jsonl" else [content]
    return json.dumps([_timeless(json.loads(part)) for part in parts], sort_keys=True).encode()


def _timeless(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _timeless(item) for name, item in value.items() if name not in CLOCKS}
    return [_timeless(item) for item in value] if isinstance(value, list) else value


def differences(before: dict[str, str], after: dict[str, str]) -> list[str]:
    """Returns the names of the entries in which two fingerprints differ."""
    names = [*before, *(name for name in after if name not in before)]
    return [name for name in names if before.get(name) != after.get(name)]


def doing(workdir: Path, old: set[str]) -> str:
    """Describes the current activity of a run from the files in its directory.

    Unfinished checkpoints older than the process, `old`, do not count; the first save removes them.
    """
    if (workdir / "summary.json").exists():
        return "drawing or ending"
    try:
        lines = metrics.read(workdir / "metrics.jsonl")
    except ValueError as error:
        return f"unreadable metrics: {error}"
    step = f"after step {lines[-1]['step']}" if lines else "before the first line"
    return f"saving {step}" if _saving(workdir) - old else step


def _saving(workdir: Path) -> set[str]:
    """Returns the names of unfinished checkpoints, of this process or of one that was killed."""
    return {path.name for path in workdir.glob("checkpoints/*.orbax-checkpoint-tmp")}


class Times(NamedTuple):
    """Seconds from the start of an uninterrupted run to its lock, its summary and its end."""

    taken: float
    summed: float
    ended: float


class Run:
    """A process that runs an experiment, with its output in a log file."""

    def __init__(self, subject: subjects.Subject, workdir: Path, cache: Path):
        """Starts the process, with JAX's compilation cache in the folder `cache`."""
        self.workdir, self._log = workdir, workdir.with_suffix(".log")
        environment = {
            **os.environ,
            "JAX_COMPILATION_CACHE_DIR": str(cache),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        }
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                subject.started(workdir), stdout=log, stderr=subprocess.STDOUT, env=environment
            )
        self.began = time.monotonic()

    @property
    def seconds(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self.began

    def said(self) -> str:
        """Returns the last 2000 characters of the log."""
        return self._log.read_text(encoding="utf-8", errors="replace")[-2000:]

    def until(self, condition: Callable[[], bool]) -> bool:
        """Waits until the condition holds; returns False if the process ends first.

        Raises:
            TimeoutError: the process runs for longer than `LONGEST`.
        """
        while not condition():
            if self.process.poll() is not None:
                return False
            if self.seconds > LONGEST:
                self.process.kill()
                raise TimeoutError(f"{self.workdir} did not end in {LONGEST:.0f} s: {self.said()}")
            time.sleep(0.002)
        return True

    def end(self) -> None:
        """Waits until the process ends.

        Raises:
            RuntimeError: the process failed; the message has the end of its log.
        """
        self.until(lambda: self.process.poll() is not None)
        if self.process.wait():
            raise RuntimeError(f"{self.workdir} ended with {self.process.returncode}: {self.said()}")


def soak(
    subject: subjects.Subject, kills: int, folder: Path, moments: random.Random, tell: Callable[[str], None]
) -> dict[str, Any]:
    """Kills one experiment `kills` times, with its runs in the new folder, and returns the record.

    Raises:
        RuntimeError: a run failed without being killed, or ends too soon to be killed.
    """
    cache, began = folder / "compiled", time.monotonic()
    first = Run(subject, folder / "uninterrupted", cache)
    first.end()
    cold = first.seconds
    wanted = fingerprint(first.workdir)
    again = Run(subject, folder / "repeated", cache)
    again.until((again.workdir / ".lock").exists)
    taken = again.seconds
    again.until((again.workdir / "summary.json").exists)
    times = Times(taken, again.seconds, 0.0)
    again.end()
    times = times._replace(ended=again.seconds)
    repeated = differences(wanted, fingerprint(again.workdir))
    tell(f"{subject.name}: uninterrupted {cold:.1f} s, repeated {times.ended:.1f} s, {repeated or 'equal'}")

    record: list[dict[str, Any]] = []
    journeys, tries = [], 0
    while len(record) < kills:
        if tries > 20 * kills:
            raise RuntimeError(f"{subject.name}: got {len(record)} kills in {tries} tries, expected {kills}")
        number, spent, before = len(journeys) + 1, 0.0, len(record)
        workdir = folder / f"journey_{number}"
        try:
            run = Run(subject, workdir, cache)
            while len(record) < kills and _killed(run, tries, number, times, moments, record):
                spent += run.seconds
                last = record[-1]
                tell(
                    f"{subject.name}: kill {len(record)}/{kills}, run {number}, {last['signal']} "
                    f"at {last['second']:.1f} s: {last['doing']}"
                )
                run, tries = Run(subject, workdir, cache), tries + 1
            run.end()
            spent += run.seconds
            unlike = differences(wanted, fingerprint(workdir)) + sorted(_saving(workdir))
        except (RuntimeError, TimeoutError, ValueError) as error:  # reported; the next run starts
            unlike = [str(error)]
        tries += 1
        count = len(record) - before
        journeys.append(
            {"kills": count, "seconds": round(spent, 1), "equal": not unlike, "differences": unlike}
        )
        tell(f"{subject.name}: run {number} ended after {count} kills, {unlike or 'equal'}")
    return {
        "experiment": subject.name,
        "command": " ".join(["python", *subject.command[1:]]).replace(str(folder.parent), "SOAK"),
        "uninterrupted_seconds": round(cold, 1),
        "repeated_seconds": round(times.ended, 1),
        "repeated_equal": not repeated,
        "compared": sorted(wanted),
        "params_sha256": wanted["parameters"],
        "kills": record,
        "runs": journeys,
        "equal": not repeated and all(journey["equal"] for journey in journeys),
        "seconds": round(time.monotonic() - began, 1),
    }


def _killed(
    run: Run, turn: int, journey: int, times: Times, moments: random.Random, record: list[dict[str, Any]]
) -> bool:
    """Kills a run at a random moment; returns False if it ends first."""
    moment, share = MOMENTS[turn % len(MOMENTS)], moments.random()
    number = signal.SIGKILL if (len(record) + 1) % TERM_EVERY else signal.SIGTERM
    left = _saving(run.workdir)
    old = (run.workdir / ".lock").stat().st_mtime_ns if (run.workdir / ".lock").exists() else 0
    if moment == "anywhere":
        alive = run.until(lambda: run.seconds >= share * times.ended)
    else:
        alive = run.until(lambda: _taken(run.workdir, old))
        # Before waiting for a save, at most half of the run: saves become rarer towards its end.
        wait = run.seconds + share * (times.summed - times.taken) * (0.5 if moment == "saving" else 1.0)
        alive = alive and run.until(lambda: run.seconds >= wait)
        if moment == "saving":
            alive = alive and run.until(lambda: bool(_saving(run.workdir) - left))
    if not alive:
        return False
    begun = _taken(run.workdir, old)
    was, second = doing(run.workdir, left) if begun else "starting", round(run.seconds, 2)
    run.process.send_signal(number)
    run.until(lambda: run.process.poll() is not None)
    status = run.process.wait()
    if status == 0:  # the run was ending, or had nothing to save
        return False
    if status not in (-number, 128 + number):
        raise RuntimeError(f"{run.workdir} ended with {status} after {number.name}: {run.said()}")
    kill = {"journey": journey, "second": second, "signal": number.name}
    record.append(kill | {"moment": moment, "doing": was, "status": status})
    return True


def _taken(workdir: Path, old: int) -> bool:
    """Returns whether the new process has taken the directory, by the time stamp of the lock."""
    lock = workdir / ".lock"
    return lock.exists() and lock.stat().st_mtime_ns != old


def table(result: dict[str, Any]) -> str:
    """Returns the record as a Markdown page."""
    made = result["machine"]
    lines = [
        "# Killed and restarted runs",
        "",
        f"`{result['command']}`, {made['date']}, {made['cpus']} CPU cores ({made['platform']}), "
        f"jax {made['versions']['jax']}, python {made['versions']['python']}, commit {result['commit']}; "
        f"{result['seconds'] / 60:.0f} minutes.",
        "",
        f"{result['kills']} kills of {result['runs']} runs, of which {result['equal_runs']} ended like the "
        "uninterrupted run: with the same bits in parameters, optimizer, random keys and environments, and "
        "the same record and files (except clock readings and figures).",
        "",
    ]
    rows = []
    for one in result["experiments"]:
        terms = sum(kill["signal"] == "SIGTERM" for kill in one["kills"])
        equal = sum(run["equal"] for run in one["runs"])
        counts = one["experiment"], len(one["kills"]), terms, len(one["runs"]), equal
        rows.append((*counts, "yes" if one["repeated_equal"] else "no", one["repeated_seconds"]))
    head = ("experiment", "kills", "by SIGTERM", "runs", "equal", "reproducible", "seconds uninterrupted")
    lines.append(machine.markdown(head, rows))
    moments = collections.Counter(
        re.sub(r"step \d+", "a step", kill["doing"]) for one in result["experiments"] for kill in one["kills"]
    )
    lines += ["Activity of the runs when they were killed:", ""]
    lines += [f"- {what}: {count}" for what, count in moments.most_common()]
    for one in result["experiments"]:
        for number, run in enumerate(one["runs"], 1):
            if not run["equal"]:
                lines.append(f"\n{one['experiment']}, run {number} differs: {', '.join(run['differences'])}")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Runs the program; the exit status is 1 if a run differs from the uninterrupted one."""
    values = flags.FLAGS
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="soak.") as folder:
        chosen = subjects.all_subjects(Path(folder) / "data")
        names = values.only or list(chosen)
        if unknown := [name for name in names if name not in chosen]:
            raise app.UsageError(f"--only: got {unknown[0]!r}, expected some of {', '.join(chosen)}")
        if values.kills < len(names):
            raise app.UsageError(f"--kills: got {values.kills}, expected at least {len(names)}")
        found = []
        for name, share in launching.share(values.kills, names).items():
            room = Path(folder) / name
            room.mkdir()
            moments = random.Random(f"{values.seed} {name}")
            found.append(soak(chosen[name], share, room, moments, lambda line: print(line, flush=True)))
    runs = [run for one in found for run in one["runs"]]
    result = {
        "command": f"python -m benchmarks.soak --kills={values.kills} --seed={values.seed}"
        + (f" --only={','.join(values.only)}" if values.only else ""),
        "machine": machine.describe(),
        "commit": surroundings()["commit"],
        "kills": sum(len(one["kills"]) for one in found),
        "runs": len(runs),
        "equal_runs": sum(run["equal"] for run in runs),
        "equal": all(one["equal"] for one in found),
        "seconds": round(time.monotonic() - began, 1),
        "experiments": found,
    }
    launching.report(Path(values.out), result, table(result), fine=result["equal"])


if __name__ == "__main__":
    flags.DEFINE_integer("kills", 54, "total number of kills", lower_bound=1)
    flags.DEFINE_list("only", [], "experiments to kill; all by default")
    flags.DEFINE_integer("seed", 0, "seed of the random moments")
    flags.DEFINE_string(
        "out", "results/reliability/soak.json", "file for the record; the table is a .md file"
    )
    launching.run(main)
