"""Kills experiments at random moments, starts them again until they end, and looks whether anything differs.

    python -m benchmarks.soak [--kills=54] [--only=llrnn,kinship] [--seed=0]

Each of the six experiments is run twice without interruption: the second time shows that the run repeats
itself at all, and how long it takes once its programs are in JAX's compilation cache. Then it is killed, by
SIGKILL and every sixth time by SIGTERM, started again with the same command, killed again, and so on. A run
that reaches its end is compared and the next one begun, until the experiment has had its share of kills.
Moments are of three kinds, in turn: anywhere; anywhere from when the run has taken its directory to when it
has written its summary, which leaves out imports and pictures; and as soon as a checkpoint is being written.

An ended run is compared with the uninterrupted one by the SHA-256 of its parameters, that of all that its
last checkpoint holds (optimizer, random keys, environments), and every file it has left, without clock
readings. Pictures are not compared: some show seconds. The record goes to `--out`, a table beside it.
"""

import collections
import dataclasses
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
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
from absl import app, flags, logging
from orbax.checkpoint import v1 as ocp

from benchmarks import machine
from benchmarks.reliability import subjects
from experiments.runtime import metrics
from experiments.runtime.workdir import params_sha256, surroundings, write_json

MOMENTS = ("anywhere", "at work", "saving")
TERM_EVERY = 6
CLOCKS = ("train_seconds", "compile_seconds", "wall_seconds", "commit")
"""What may differ between a run and its repetition; `commit` has "-dirty" while somebody edits a file."""
PICTURES = (".png", ".gif", ".mp4")
LONGEST = 900.0
"""Seconds after which a run is taken to hang."""


@dataclasses.dataclass
class Kill:
    """A run that was stopped."""

    journey: int  # of which run, from 1
    second: float  # after its process was started
    signal: str  # which
    moment: str  # the kind of moment that was chosen
    doing: str  # what the run was about, by its files and its last line
    status: int  # its exit status, negative for a signal


@dataclasses.dataclass
class Journey:
    """A run from its first start to its end."""

    kills: int  # how often it was killed on its way
    seconds: float  # of all its processes
    equal: bool  # whether nothing differs from the uninterrupted run
    differences: list[str]  # what does


def fingerprint(workdir: Path) -> dict[str, str]:
    """What a finished run has left, without clock readings, by file; each as a hash.

    Raises:
        ValueError: the run is not finished.
    """
    summary = workdir / "summary.json"
    if not summary.exists():
        raise ValueError(f"{workdir} has no summary.json: the run has not ended")
    found = {"parameters": json.loads(summary.read_text(encoding="utf-8"))["params_sha256"]}
    if saved := _steps(workdir):
        found["checkpoint"] = f"{saved[-1]} {_state_sha256(workdir / 'checkpoints' / str(saved[-1]))}"
    for path in sorted(workdir.rglob("*")):
        name = path.relative_to(workdir)
        if name.parts[0] == "checkpoints" or path.suffix in PICTURES or path.name == ".lock" or path.is_dir():
            continue
        found[str(name)] = hashlib.sha256(_without_clocks(path)).hexdigest()
    return found


def _steps(workdir: Path) -> list[int]:
    folder = workdir / "checkpoints"
    return (
        sorted(int(path.name) for path in folder.iterdir() if path.name.isdigit()) if folder.is_dir() else []
    )


def _state_sha256(path: Path) -> str:
    with warnings.catch_warnings(action="ignore"):  # that it lies on devices as it was saved
        state = ocp.load(str(path))

    def words(leaf: Any) -> Any:
        is_key = jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)
        return jax.random.key_data(leaf) if is_key else leaf

    return params_sha256(jax.tree.map(words, state))


def _without_clocks(path: Path) -> bytes:
    """A file's bytes; of JSON, its values without those that a clock gave."""
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
    """What is not alike of two fingerprints, by name."""
    names = [*before, *(name for name in after if name not in before)]
    return [name for name in names if before.get(name) != after.get(name)]


def doing(workdir: Path, old: set[str]) -> str:
    """What a run is about, by what is in its directory.

    Args:
        workdir: the directory.
        old: unfinished checkpoints that were there before its process; the first save clears them away.
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
    """Checkpoints whose writing has begun and not ended, of this process or one that was killed."""
    return {path.name for path in workdir.glob("checkpoints/*.orbax-checkpoint-tmp")}


class Times(NamedTuple):
    """Seconds after its start at which an uninterrupted run had its directory, wrote its summary, ended."""

    taken: float
    summed: float
    ended: float


class Run:
    """A process of a run, with its output in a file."""

    def __init__(self, subject: subjects.Subject, workdir: Path, cache: Path):
        """Starts it."""
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
        """Since it was started."""
        return time.monotonic() - self.began

    def said(self) -> str:
        """The end of what it has printed."""
        return self._log.read_text(encoding="utf-8", errors="replace")[-2000:]

    def until(self, condition: Callable[[], bool]) -> bool:
        """Waits; False if the process has ended before.

        Raises:
            TimeoutError: it hangs.
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
        """Waits for its end.

        Raises:
            RuntimeError: it failed; with what it said.
        """
        self.until(lambda: self.process.poll() is not None)
        if self.process.wait():
            raise RuntimeError(f"{self.workdir} ended with {self.process.returncode}: {self.said()}")


def soak(
    subject: subjects.Subject, kills: int, folder: Path, moments: random.Random, tell: Callable[[str], None]
) -> dict[str, Any]:
    """Kills one experiment until it has had enough.

    Args:
        subject: the experiment.
        kills: how often.
        folder: where its runs go; new.
        moments: chooses when.
        tell: takes lines on how far it is.

    Returns:
        The record.

    Raises:
        RuntimeError: a run failed that nobody killed, or is over too soon to be killed.
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

    record, journeys, tries = [], [], 0
    while len(record) < kills:
        if tries > 20 * kills:
            raise RuntimeError(f"{subject.name} ends before it can be killed: {len(record)} times in {tries}")
        number, spent, before = len(journeys) + 1, 0.0, len(record)
        workdir = folder / f"journey_{number}"
        try:
            run = Run(subject, workdir, cache)
            while len(record) < kills and _killed(run, tries, number, times, moments, record):
                spent += run.seconds
                last = record[-1]
                tell(
                    f"{subject.name}: kill {len(record)}/{kills}, run {number}, {last.signal} "
                    f"at {last.second:.1f} s: {last.doing}"
                )
                run, tries = Run(subject, workdir, cache), tries + 1
            run.end()
            spent += run.seconds
            unlike = differences(wanted, fingerprint(workdir)) + sorted(_saving(workdir))
        except (RuntimeError, TimeoutError, ValueError) as error:  # told, and the next one begun
            unlike = [str(error)]
        tries += 1
        journeys.append(Journey(len(record) - before, round(spent, 1), not unlike, unlike))
        tell(f"{subject.name}: run {number} ended after {journeys[-1].kills} kills, {unlike or 'equal'}")
    return {
        "experiment": subject.name,
        "command": " ".join(["python", *subject.command[1:]]).replace(str(folder.parent), "SOAK"),
        "uninterrupted_seconds": round(cold, 1),
        "repeated_seconds": round(times.ended, 1),
        "repeated_equal": not repeated,
        "compared": sorted(wanted),
        "params_sha256": wanted["parameters"],
        "kills": [dataclasses.asdict(kill) for kill in record],
        "runs": [dataclasses.asdict(journey) for journey in journeys],
        "equal": not repeated and all(journey.equal for journey in journeys),
        "seconds": round(time.monotonic() - began, 1),
    }


def _killed(
    run: Run,
    turn: int,
    journey: int,
    times: Times,
    moments: random.Random,
    record: list[Kill],
) -> bool:
    """Kills a run at a moment; False if it has ended before."""
    moment, share = MOMENTS[turn % len(MOMENTS)], moments.random()
    number = signal.SIGKILL if (len(record) + 1) % TERM_EVERY else signal.SIGTERM
    left = _saving(run.workdir)
    old = (run.workdir / ".lock").stat().st_mtime_ns if (run.workdir / ".lock").exists() else 0
    if moment == "anywhere":
        alive = run.until(lambda: run.seconds >= share * times.ended)
    else:
        alive = run.until(lambda: _taken(run.workdir, old))
        # Half of the time if a save is waited for: they become fewer as the run goes on.
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
    if status == 0:  # it was about to end, or nothing was left to save
        return False
    if status not in (-number, 128 + number):
        raise RuntimeError(f"{run.workdir} ended with {status} when it got {number.name}: {run.said()}")
    record.append(Kill(journey, second, number.name, moment, was, status))
    return True


def _taken(workdir: Path, old: int) -> bool:
    """Whether a process that was started now has taken the directory: it opens the lock anew."""
    lock = workdir / ".lock"
    return lock.exists() and lock.stat().st_mtime_ns != old


def table(result: dict[str, Any]) -> str:
    """The record for people."""
    made = result["machine"]
    lines = [
        "# Killed and started again",
        "",
        f"`{result['command']}`, {made['date']}, {made['cpus']} CPU cores ({made['platform']}), "
        f"jax {made['versions']['jax']}, python {made['versions']['python']}, commit {result['commit']}; "
        f"{result['seconds'] / 60:.0f} minutes.",
        "",
        f"{result['kills']} kills of {result['runs']} runs, of which {result['equal_runs']} ended as the "
        "uninterrupted run did: the same bits in parameters, optimizer, random keys and environments, the "
        "same record and files (clock readings and pictures left out).",
        "",
        "| experiment | kills | by SIGTERM | runs | equal | repeats itself | seconds uninterrupted |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for one in result["experiments"]:
        terms = sum(kill["signal"] == "SIGTERM" for kill in one["kills"])
        equal = sum(run["equal"] for run in one["runs"])
        lines.append(
            f"| {one['experiment']} | {len(one['kills'])} | {terms} | {len(one['runs'])} | {equal} | "
            f"{'yes' if one['repeated_equal'] else 'no'} | {one['repeated_seconds']} |"
        )
    moments = collections.Counter(
        _kind(kill["doing"]) for one in result["experiments"] for kill in one["kills"]
    )
    lines += ["", "What the runs were doing when they were killed:", ""]
    if "note" in result:
        lines[-1:] = ["", result["note"], ""]
    lines += [f"- {what}: {count}" for what, count in moments.most_common()]
    for one in result["experiments"]:
        for number, run in enumerate(one["runs"], 1):
            if not run["equal"]:
                lines.append(f"\n{one['experiment']}, run {number} differs: {', '.join(run['differences'])}")
    return "\n".join(lines) + "\n"


def _kind(what: str) -> str:
    return re.sub(r"step \d+", "a step", what)


def main(arguments: Sequence[str]) -> None:
    """The program; exit status 1 if a run ended otherwise than the uninterrupted one."""
    values = flags.FLAGS
    logging.set_verbosity(logging.WARNING)  # JAX and Orbax tell much at the level below
    began, out = time.monotonic(), Path(values.out)
    with tempfile.TemporaryDirectory(prefix="soak.") as folder:
        chosen = subjects.all_subjects(Path(folder) / "data")
        names = values.only or list(chosen)
        if unknown := [name for name in names if name not in chosen]:
            raise app.UsageError(f"--only={unknown[0]} is not one of {', '.join(chosen)}")
        if len(arguments) > 1 or values.kills < len(names):
            raise app.UsageError(f"--kills must be {len(names)} or more, and nothing else be given")
        found = []
        for place, name in enumerate(names):
            share = values.kills // len(names) + (place < values.kills % len(names))
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
    out.parent.mkdir(parents=True, exist_ok=True)
    write_json(out, result)
    out.with_suffix(".md").write_text(table(result), encoding="utf-8")
    print(table(result))
    if not result["equal"]:
        raise SystemExit(1)


if __name__ == "__main__":
    flags.DEFINE_integer("kills", 54, "how many in all", lower_bound=1)
    flags.DEFINE_list("only", [], "experiments, all by default")
    flags.DEFINE_integer("seed", 0, "of the moments")
    flags.DEFINE_string("out", "results/reliability/soak.json", "the record; a table goes beside it")
    app.run(main)
