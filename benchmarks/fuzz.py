"""Damages the files of every reader and checks how the reader behaves.

    python -m benchmarks.fuzz [--cases=2400] [--only="SQuAD;FOLIO"] [--seed=0] [--case="SQuAD 17"]

A damaged file is truncated, has flipped bits or ranges that are lost, doubled, zeroed or noise, is replaced
by another file, is deleted, or contains a program. The reader must then raise a `ValueError` (or its
documented error) that names the file, or read the same meaning, or, if the format has no checksum and the
damage resulted in another valid file, read that. With a checksum, another meaning is a finding. So is any
other exception, the death of the process, ten seconds of processor time, two gigabytes of memory, any program
started, any code executed, any file written elsewhere, and any incomplete file left behind.

Cases run one after the other in a worker process; if it dies, a new one takes over. A case depends only on
the seed, the reader's name and its number, so `--case` repeats it. The record is written to `--out`, with a
table as Markdown next to it.
"""

import collections
import contextlib
import dataclasses
import json
import multiprocessing
import os
import resource
import tempfile
import time
from collections.abc import Iterable, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from absl import app, flags, logging

from benchmarks import launching, machine
from benchmarks.reliability import damage, trial
from benchmarks.reliability.reader import Reader

READY, LONGEST = 720.0, 60.0
"""Maximum seconds for the start of a worker and for a case, on a machine that may be busy."""
FINE = (trial.REFUSED, trial.SAME, trial.READ)
"""Results that are not findings."""
MEMORY = 2 * 1024**3
"""Maximum bytes of address space beyond those of a worker that has read all valid files."""


def readers() -> dict[str, Reader]:
    """Returns all readers, by name."""
    from benchmarks.reliability import data, records, weights  # late, since they import the whole project

    return {reader.name: reader for reader in (*weights.READERS, *data.READERS, *records.READERS)}


def work(answers: Connection, folder: Path, seed: int, names: Sequence[str]) -> None:
    """Receives cases and answers with outcomes; runs in a process of its own."""
    errors = os.open(folder / "errors.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(errors, 1)
    os.dup2(errors, 2)
    logging.set_verbosity(logging.FATAL)
    chosen = {name: reader for name, reader in readers().items() if name in names}
    valid, others = {}, {}
    for place, (name, reader) in enumerate(chosen.items()):
        valid[name] = folder / f"{place:02d}"
        if not (folder / f"{place:02d}.made").exists():
            valid[name].mkdir()
            reader.make(valid[name])
            (folder / f"{place:02d}.made").touch()
        others[name] = reader.files(valid[name])
    watch, room = trial.Watch(), Path(tempfile.mkdtemp(prefix="case.", dir=folder))
    meanings = {name: trial.warm(reader, valid[name], room, watch) for name, reader in chosen.items()}
    used = int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[0]) * os.sysconf("SC_PAGE_SIZE")
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    answers.send("ready")
    while True:
        name, number = answers.recv()
        foreign = [path for other, paths in others.items() if other != name for path in paths]
        of_case = room, foreign, number, seed, watch
        answers.send(dataclasses.asdict(trial.attempt(chosen[name], valid[name], meanings[name], *of_case)))


class Worker:
    """A process that runs cases."""

    def __init__(self, folder: Path, seed: int, names: Sequence[str]):
        """Starts the process and waits until it is ready.

        Raises:
            RuntimeError: it does not start; the message has the end of its log.
        """
        self._folder = folder
        self._answers, theirs = multiprocessing.Pipe()
        context = multiprocessing.get_context("spawn")  # a fork would lose JAX's threads
        self._process = context.Process(target=work, args=(theirs, folder, seed, names), daemon=True)
        self._process.start()
        theirs.close()
        if self._answer(READY) is None:
            raise RuntimeError(f"the worker did not start: {self.said()}")

    def ask(self, name: str, number: int) -> dict[str, Any]:
        """Runs a case in the process; without an answer the result is "death" or "hang"."""
        with contextlib.suppress(BrokenPipeError):
            self._answers.send((name, number))
        if (answer := self._answer(LONGEST)) is not None:
            return answer
        self._process.join(5)  # the process is dying or hangs
        ended = self._process.exitcode
        self.stop()
        result, message = "hang" if ended is None else "death", f"status {ended}: {self.said()}"
        return {"kind": damage.chosen(number), "file": "", "result": result, "message": message}

    @property
    def alive(self) -> bool:
        """Whether the process is running."""
        return self._process.is_alive()

    def _answer(self, seconds: float) -> Any:
        with contextlib.suppress(EOFError, ConnectionResetError):
            return self._answers.recv() if self._answers.poll(seconds) else None

    def said(self) -> str:
        """Returns the last 1500 characters of its output."""
        file = self._folder / "errors.log"
        return file.read_text(encoding="utf-8", errors="replace")[-1500:] if file.exists() else ""

    def stop(self) -> None:
        """Kills the process and waits for its end."""
        self._process.kill()
        self._process.join()


def fuzz(names: Sequence[str], cases: Iterable[tuple[str, int]], seed: int) -> list[dict[str, Any]]:
    """Runs cases; returns for each the reader, the number, and the fields of its `trial.Outcome`."""
    found, printed = [], time.monotonic()
    with tempfile.TemporaryDirectory(prefix="fuzz.") as folder:
        worker = Worker(Path(folder), seed, names)
        for name, number in cases:
            if not worker.alive:
                worker = Worker(Path(folder), seed, names)
            outcome = {"reader": name, "case": number, **worker.ask(name, number)}
            found.append(outcome)
            if outcome["result"] not in FINE:
                what = f"{outcome['result']}, {outcome['kind']} of {outcome['file']}"
                print(f"{name} {number}: {what}: {outcome['message']}", flush=True)
            if time.monotonic() - printed > 20:
                printed = time.monotonic()
                print(f"{len(found)} cases, now {name}", flush=True)
        worker.stop()
    return found


def summarize(found: Sequence[dict[str, Any]], chosen: dict[str, Reader]) -> list[dict[str, Any]]:
    """Returns a row for each reader with its number of cases by result."""
    rows = []
    for name in dict.fromkeys(case["reader"] for case in found):
        counts = collections.Counter(case["result"] for case in found if case["reader"] == name)
        row = {"reader": name, "code": chosen[name].code, "checked": chosen[name].checked}
        row["cases"] = counts.total()
        row |= {result: counts.pop(result, 0) for result in FINE}
        rows.append({**row, "findings": dict(counts)})
    return rows


def table(result: dict[str, Any]) -> str:
    """Returns the record as a Markdown page."""
    made, rows = result["machine"], result["readers"]
    total = {name: sum(row[name] for row in rows) for name in ("cases", *FINE)}
    wrong = sum(sum(row["findings"].values()) for row in rows)
    cells = []
    for row in rows:
        findings = ", ".join(f"{count} {name}" for name, count in row["findings"].items()) or "0"
        counts = (row[name] for name in ("cases", *FINE))
        cells.append(
            (row["reader"], f"`{row['code']}`", *counts, "yes" if row["checked"] else "no", findings)
        )
    head = ("files", "read by", "cases", "refused", "same meaning", "another meaning")
    head += ("checksum", "findings")
    kinds = "".join(f"- {kind or 'unknown'}: {count}\n" for kind, count in result["kinds"].items())
    return f"""# Damaged files

`{result["command"]}`, {made["date"]}, {made["cpus"]} CPU cores, \
jax {made["versions"]["jax"]}, python {made["versions"]["python"]}, commit {result["commit"]}; \
{result["seconds"]:.0f} s, of which {result["cpu_seconds"]:.0f} s of processor time.

{total["cases"]:,} cases, {len(rows)} readers: {total["refused"]:,} refused with a message \
that names the file, {total["same"]:,} read with the same meaning, {total["read"]:,} read with \
another meaning from a format without a checksum for it, {wrong} findings (other exceptions, \
deaths, hangs, excessive memory, code executed, incomplete files, damage not noticed despite a \
checksum).

{machine.markdown(head, cells)}
Cases by kind of damage:

{kinds}"""


def main() -> None:
    """Runs the program; the exit status is 1 if there are findings."""
    values, chosen = flags.FLAGS, readers()
    names = values.only.split(";") if values.only else list(chosen)
    if unknown := [name for name in names if name not in chosen]:
        raise app.UsageError(f"--only: got {unknown[0]!r}, expected some of {'; '.join(chosen)}")
    began = time.monotonic()
    if values.case:
        name, _, number = values.case.rpartition(" ")
        print(json.dumps(fuzz(names, [(name, int(number))], values.seed)[0], indent=1))
        return
    cases = launching.share(values.cases, names)
    numbered = [(name, number) for name in names for number in range(cases[name])]
    found = fuzz(names, numbered, values.seed)
    from experiments.runtime.workdir import surroundings

    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    examples: dict[tuple[str, str], dict[str, Any]] = {}
    for case in found:
        if case["result"] == trial.REFUSED:  # the first message that a user gets for each kind of damage
            examples.setdefault((case["reader"], case["kind"]), case)
    result = {
        "command": f"python -m benchmarks.fuzz --cases={values.cases} --seed={values.seed}"
        + (f" --only='{values.only}'" if values.only else ""),
        "machine": machine.describe(),
        "commit": surroundings()["commit"],
        "seconds": round(time.monotonic() - began, 1),
        "cpu_seconds": round(spent.ru_utime + spent.ru_stime, 1),
        "cases": len(found),
        "kinds": dict(collections.Counter(case["kind"] for case in found).most_common()),
        "readers": summarize(found, chosen),
        "findings": [case for case in found if case["result"] not in FINE],
        "examples": list(examples.values()),
    }
    launching.report(Path(values.out), result, table(result), fine=not result["findings"])


if __name__ == "__main__":
    flags.DEFINE_integer("cases", 2400, "total number of cases", lower_bound=1)
    flags.DEFINE_string("only", "", "readers, separated by semicolons; all by default")
    flags.DEFINE_integer("seed", 0, "seed of the damage")
    flags.DEFINE_string("case", "", "a single case to repeat, as READER NUMBER")
    flags.DEFINE_string(
        "out", "results/reliability/fuzz.json", "file for the record; the table is a .md file"
    )
    launching.run(main)
