"""Compares the speed of this tree with an earlier commit's, and exits with status 1 if something is slower.

    python -m benchmarks.guard --against=5014307

Extracts the commit into a temporary folder. Then starts one process per tree for each subject
(`benchmarks.guard.subjects`), with the same environment; in each repetition one computes while the other
waits, then the other, the order alternating. The ratio of a repetition is the median seconds of the earlier
tree over those of this one. A subject is slower if the median ratio is below 1 - tolerance and three of four
repetitions are below 1, or if it worked in the earlier tree and fails in this one.

Turns are short, because a machine changes while it is measured: where a host moves the cores of a virtual
machine, they share a cache in one minute and not in the next, and the same program takes 1.5 times as long.

With `--out`, every measurement is written when it is made. The same command continues where it was stopped;
files of other commits or settings are refused.
"""

import contextlib
import io
import json
import os
import statistics
import subprocess
import sys
import tarfile
import tempfile
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from absl import app, flags

from benchmarks import launching, machine, timing
from benchmarks.guard import subjects
from experiments.runtime.workdir import commit_of

ROOT = Path(__file__).resolve().parents[2]
TREES = ("before", "after")
Measure = Callable[[float], dict[str, Any]]
"""Maps the approximate seconds to measure to the measurement, as in `Runs`."""
Runs = dict[str, list[dict[str, Any]]]
"""The measurements of each tree; one that failed has "failed" in place of "seconds"."""


def git(*arguments: str) -> str:
    """Runs git in this tree; raises CalledProcessError if it fails."""
    command = ["git", "-C", str(ROOT), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def full_name(commit: str) -> str:
    """Returns the SHA of a commit; raises UsageError if there is none of this name."""
    try:
        return git("rev-parse", "--verify", "--quiet", f"{commit}^{{commit}}")
    except subprocess.CalledProcessError as error:
        raise app.UsageError(f"--against: got {commit!r}, expected a commit of {ROOT}") from error


def extract(commit: str, folder: Path) -> None:
    """Writes the files of a commit to a folder; unlike a worktree, it leaves nothing behind if killed."""
    archive = subprocess.run(
        ["git", "-C", str(ROOT), "archive", "--format=tar", commit], capture_output=True, check=True
    )
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
        files.extractall(folder, filter="data")


@contextlib.contextmanager
def started(tree: Path, name: str, size: str, limit: float) -> Generator[Measure]:
    """Starts a process that times a subject in a tree, and yields a function that asks it to.

    The function takes about how many seconds to measure. It returns the seconds of the calls, or why there
    are none: after a failure every reply is the same. The process is ended if a reply takes `limit` seconds.
    """
    late = threading.Event()
    with (
        tempfile.TemporaryFile("w+") as errors,
        subprocess.Popen(
            [sys.executable, "-P", subjects.__file__, name, size],
            cwd=tree,
            env=os.environ | {"PYTHONPATH": str(tree)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        ) as process,
    ):
        assert process.stdin
        assert process.stdout
        requests, replies = process.stdin, process.stdout

        def end() -> None:
            late.set()
            process.kill()

        def measure(seconds: float) -> dict[str, Any]:
            timer = threading.Timer(limit, end)
            timer.start()
            with contextlib.suppress(BrokenPipeError):  # it has ended, as the reply says
                print(seconds, file=requests, flush=True)
            reply = replies.readline()
            timer.cancel()
            if reply:
                return json.loads(reply)
            if late.is_set():
                return {"failed": f"no reply after {limit:g} s"}
            status = process.wait()
            errors.seek(0)
            return {"failed": (errors.read().strip() or f"status {status}").splitlines()[-1][:300]}

        try:
            yield measure
        finally:
            process.kill()
            process.communicate()


def judged(runs: Runs, tolerance: float) -> dict[str, Any]:
    """Returns the spread of a subject's ratios before / after, or why there is none, and a verdict."""
    before, after = ([run.get("failed") for run in runs[tree]] for tree in TREES)
    if any(before) or any(after):
        failed = {
            tree: next(filter(None, found), None) for tree, found in zip(TREES, (before, after), strict=True)
        }
        return {**failed, "verdict": "broken" if any(after) and not any(before) else "not compared"}
    medians = [[statistics.median(run["seconds"]) for run in runs[tree]] for tree in TREES]
    ratio = timing.ratio(*medians)
    lower, upper = np.quantile(ratio["blocks"], (0.25, 0.75))
    if ratio["median"] < 1 - tolerance and upper < 1:
        verdict = "slower"
    elif ratio["median"] > 1 + tolerance and lower > 1:
        verdict = "faster"
    else:
        verdict = "within the spread"
    seconds = {tree: statistics.median(found) for tree, found in zip(TREES, medians, strict=True)}
    return {**seconds, "ratio": ratio, "verdict": verdict}


def line(name: str, found: Mapping[str, Any]) -> str:
    """Formats a subject's result."""
    if "ratio" not in found:
        return f"{name:24} {found['verdict']}: before {found['before']}, after {found['after']}"
    times = f"{1000 * found['before']:9.2f} ms {1000 * found['after']:9.2f} ms"
    return f"{name:24} {times}   {timing.shown(found['ratio'])} times as fast: {found['verdict']}"


def begun(out: Path | None, head: Mapping[str, Any]) -> dict[str, Runs]:
    """Reads the measurements of an interrupted run; raises UsageError if they are of other settings."""
    if out is None or not out.exists():
        return {}
    try:
        record = json.loads(out.read_text(encoding="utf-8"))
        differing = [name for name, value in head.items() if record[name] != value]
        runs = record["runs"]
    except (ValueError, KeyError, TypeError) as error:
        raise app.UsageError(f"--out: got {out} with {error!r}, expected a record of this program") from error
    if differing:
        raise app.UsageError(
            f"--out: got {out} of a run with another {', '.join(differing)}, expected the same; choose "
            "another file"
        )
    return runs


def compare(
    trees: Mapping[str, Path], names: Sequence[str], values: Any, runs: dict[str, Runs], keep: Any
) -> None:
    """Makes the missing measurements; calls `keep` after each."""
    for name in names:
        of = runs.setdefault(name, {tree: [] for tree in TREES})
        if all(len(made) >= values.repetitions for made in of.values()):
            continue
        with contextlib.ExitStack() as stack:
            measures = {
                tree: stack.enter_context(started(folder, name, values.size, values.limit))
                for tree, folder in trees.items()
            }
            for measure in measures.values():  # until both have compiled, so that neither disturbs the other
                measure(0)
            for repetition in range(values.repetitions):
                for tree in TREES if repetition % 2 == 0 else TREES[::-1]:
                    if len(of[tree]) <= repetition:
                        of[tree].append(measures[tree](values.seconds))
                        keep()
        print(line(name, judged(of, values.tolerance)), flush=True)


def main() -> None:
    """Runs the program with the values of its flags."""
    values = flags.FLAGS
    if unknown := [word for word in values.only if not any(word in name for name in subjects.SUBJECTS)]:
        raise app.UsageError(
            f"--only: got {unknown[0]!r}, expected a part of one of {', '.join(subjects.SUBJECTS)}"
        )
    names = [
        name for name in subjects.SUBJECTS if not values.only or any(word in name for word in values.only)
    ]
    commit = full_name(values.against)
    out = Path(values.out) if values.out else None
    head: dict[str, Any] = {"against": commit, "commit": commit_of(ROOT), "size": values.size}
    runs = begun(out, head)
    about = timing.where_and_when() | head | {"command": f"python -m benchmarks.guard --against={commit[:7]}"}

    def keep() -> None:
        if out:
            verdicts = {
                name: judged(of, values.tolerance)
                for name, of in runs.items()
                if of["after"] and len(of["before"]) == len(of["after"])
            }
            machine.write(out, {**about, "verdicts": verdicts, "runs": runs})

    with tempfile.TemporaryDirectory() as folder:
        earlier = Path(folder).resolve()
        extract(commit, earlier)
        compare({"before": earlier, "after": ROOT}, names, values, runs, keep)
    found = {name: judged(runs[name], values.tolerance) for name in names}
    if any(one["verdict"] in ("slower", "broken") for one in found.values()):
        raise SystemExit(1)


if __name__ == "__main__":
    flags.DEFINE_string("against", None, "the earlier commit", required=True)
    flags.DEFINE_list("only", [], "comma-separated parts of names of subjects (default: all)")
    flags.DEFINE_integer("repetitions", 10, "turns of each tree and subject", lower_bound=2)
    flags.DEFINE_float("seconds", 2.0, "approximate seconds of timed calls per turn", lower_bound=0)
    flags.DEFINE_float("limit", 900.0, "seconds to wait for a reply of a process", lower_bound=1)
    flags.DEFINE_float("tolerance", 0.02, "least change of the median ratio", lower_bound=0, upper_bound=1)
    flags.DEFINE_enum("size", "full", ("full", "tiny"), "tiny: to try the program, not to measure")
    flags.DEFINE_string("out", "", "record to write, and to continue from; empty to write none")
    launching.run(main)
