"""Damages the files of every reader and looks at what becomes of it.

    python -m benchmarks.fuzz [--cases=2400] [--only="SQuAD;FOLIO"] [--seed=0] [--case="SQuAD 17"]

A file that is cut short, has bits flipped, ranges lost, doubled, zeroed or of noise, is another file, is gone
or holds a program must be refused with a `ValueError` (or the reader's documented error) that names it; or be
read with the same meaning; or, where the format has no checksum and the damage made another valid file, be
read as that. Where a checksum exists, another meaning is a finding. So is any other exception, the death of
the process, ten seconds of processor time, two gigabytes of memory, anything started, executed or written
elsewhere, and anything half-written that is left behind.

Cases run in a worker process, one after the other; a new one takes over when it dies. A case depends on the
seed, the reader's name and its number only, so `--case` repeats one. The record goes to `--out`, a table
beside it.
"""

import collections
import contextlib
import dataclasses
import json
import os
import resource
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

READY, LONGEST = 180.0, 60.0
"""Seconds that a worker may take to begin, and for a case: the machine may be busy."""
FINE = ("refused", "same", "read")
"""Results that are no findings."""
MEMORY = 2 * 1024**3
"""Bytes of address space above those of a worker that has read all valid files."""


def readers() -> dict[str, Any]:
    """All readers, by name."""
    from benchmarks.reliability import data, records, weights

    return {reader.name: reader for reader in (*weights.READERS, *data.READERS, *records.READERS)}


def share(cases: int, names: Sequence[str]) -> list[tuple[str, int]]:
    """How many cases each reader gets, as reader and number of the case."""
    return [
        (name, number)
        for place, name in enumerate(names)
        for number in range(cases // len(names) + (place < cases % len(names)))
    ]


# ---- the worker


def work(folder: Path, seed: int, names: Sequence[str]) -> None:
    """Answers lines of cases with lines of outcomes, until there are no more."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what a library prints is not an answer
    from absl import logging

    from benchmarks.reliability import trial

    logging.set_verbosity(logging.FATAL)
    chosen = {name: reader for name, reader in readers().items() if name in names}
    valid, meanings, others = {}, {}, {}
    for place, (name, reader) in enumerate(chosen.items()):
        valid[name] = folder / f"{place:02d}"
        if not (folder / f"{place:02d}.made").exists():
            valid[name].mkdir()
            reader.make(valid[name])
            (folder / f"{place:02d}.made").touch()
        others[name] = reader.files(valid[name])
    watch, room = trial.Watch(), Path(tempfile.mkdtemp(prefix="case.", dir=folder))
    for name, reader in chosen.items():
        outcome = trial.warm(reader, valid[name], room, watch)
        meanings[name] = outcome
    used = int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[0]) * os.sysconf("SC_PAGE_SIZE")
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    print(json.dumps({"ready": True}), file=answers, flush=True)
    for line in sys.stdin:
        name, number = json.loads(line)
        foreign = [path for other, paths in others.items() if other != name for path in paths]
        outcome = trial.attempt(chosen[name], valid[name], meanings[name], room, foreign, number, seed, watch)
        print(json.dumps(dataclasses.asdict(outcome)), file=answers, flush=True)


class Worker:
    """A process that tries cases."""

    def __init__(self, folder: Path, seed: int, names: Sequence[str]):
        """Starts it; `ask` waits until it is ready."""
        command = [sys.executable, "-m", "benchmarks.fuzz", f"--work={folder}", f"--seed={seed}"]
        self._errors = (folder / "errors.log").open("wb")
        self._process = subprocess.Popen(
            [*command, f"--only={json.dumps(list(names))}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
        )
        self.began = time.monotonic()

    def ready(self) -> None:
        """Waits for it.

        Raises:
            RuntimeError: it cannot begin; with what it said.
        """
        answer = self._answer(READY * 4)
        if answer is None:
            raise RuntimeError(f"the worker did not begin: {self.said()}")

    def ask(self, name: str, number: int) -> dict[str, Any]:
        """Has it try a case; the result is "death" or "hang" if there is no answer."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps([name, number]).encode() + b"\n")
            self._process.stdin.flush()
        answer = self._answer(LONGEST)
        if answer is not None:
            return answer
        from benchmarks.reliability import damage

        ended = self._process.poll()
        self.stop()
        result = "hang" if ended is None else "death"
        return {
            "kind": damage.chosen(number),
            "file": "",
            "result": result,
            "told": f"status {ended}: {self.said()}",
        }

    @property
    def alive(self) -> bool:
        """Whether it can be asked."""
        return self._process.poll() is None

    def _answer(self, seconds: float) -> dict[str, Any] | None:
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], seconds)
        line = self._process.stdout.readline() if ready else b""
        if not line:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(5 if ready else 0.1)  # it is dying, or hangs
            return None
        return json.loads(line)

    def said(self) -> str:
        """The end of its standard error."""
        return Path(self._errors.name).read_text(encoding="utf-8", errors="replace")[-1500:]

    def stop(self) -> None:
        """Ends it."""
        self._process.kill()
        self._process.communicate()
        self._errors.close()


# ---- all cases


def fuzz(names: Sequence[str], cases: Iterable[tuple[str, int]], seed: int) -> list[dict[str, Any]]:
    """Tries cases.

    Returns:
        For each the reader, the number, and what `trial.Outcome` has.
    """
    found, told = [], time.monotonic()
    with tempfile.TemporaryDirectory(prefix="fuzz.") as folder:
        worker = Worker(Path(folder), seed, names)
        worker.ready()
        for name, number in cases:
            if not worker.alive:
                worker = Worker(Path(folder), seed, names)
                worker.ready()
            outcome = {"reader": name, "case": number, **worker.ask(name, number)}
            found.append(outcome)
            if outcome["result"] not in FINE:
                print(
                    f"{name} {number}: {outcome['result']}, {outcome['kind']} of {outcome['file']}: ", end=""
                )
                print(outcome["told"], flush=True)
            if time.monotonic() - told > 20:
                told = time.monotonic()
                print(f"{len(found)} cases, now {name}", flush=True)
        worker.stop()
    return found


def summarize(found: Sequence[dict[str, Any]], chosen: dict[str, Any]) -> list[dict[str, Any]]:
    """A row for each reader: how many cases came to what."""
    rows = []
    for name in dict.fromkeys(case["reader"] for case in found):
        counts = collections.Counter(case["result"] for case in found if case["reader"] == name)
        row = {"reader": name, "code": chosen[name].code, "checked": chosen[name].checked}
        row["cases"] = counts.total()
        row |= {result: counts.pop(result, 0) for result in FINE}
        rows.append({**row, "findings": dict(counts)})
    return rows


def table(result: dict[str, Any]) -> str:
    """The record for people."""
    made, rows = result["machine"], result["readers"]
    total = {name: sum(row[name] for row in rows) for name in ("cases", *FINE)}
    wrong = sum(sum(row["findings"].values()) for row in rows)
    lines = [
        "# Damaged files",
        "",
        f"`{result['command']}`, {made['date']}, {made['cpus']} CPU cores, "
        f"jax {made['versions']['jax']}, python {made['versions']['python']}, commit {result['commit']}; "
        f"{result['seconds']:.0f} s, of which {result['cpu_seconds']:.0f} s of processor time.",
        "",
        f"{total['cases']:,} cases, {len(rows)} readers: {total['refused']:,} refused with a message "
        f"that names the file, {total['same']:,} read with the same meaning, {total['read']:,} read with "
        f"another meaning by a format that has no checksum for it, {wrong} findings (other exceptions, "
        "deaths, hangs, memory, anything executed, anything half-written, damage unnoticed in spite of a "
        "checksum).",
        "",
        "| what is read | by | cases | refused | same meaning | another meaning | checksum | findings |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in rows:
        findings = ", ".join(f"{count} {name}" for name, count in row["findings"].items()) or "0"
        lines.append(
            f"| {row['reader']} | `{row['code']}` | {row['cases']} | {row['refused']} | {row['same']} | "
            f"{row['read']} | {'yes' if row['checked'] else 'no'} | {findings} |"
        )
    lines += ["", "Cases by kind of damage:", ""]
    lines += [f"- {kind or 'not told'}: {count}" for kind, count in result["kinds"].items()]
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str]) -> None:
    """The program; exit status 1 if there were findings."""
    from absl import app, flags

    values = flags.FLAGS
    if values.work:
        work(Path(values.work), values.seed, json.loads(values.only))
        return
    chosen = readers()
    names = values.only.split(";") if values.only else list(chosen)
    if unknown := [name for name in names if name not in chosen]:
        raise app.UsageError(f"--only={unknown[0]} is not one of {'; '.join(chosen)}")
    if len(arguments) > 1 or values.cases < 1:
        raise app.UsageError("--cases must be 1 or more, and nothing else be given")
    cases = share(values.cases, names)
    if values.case:
        name, _, number = values.case.rpartition(" ")
        cases = [(name, int(number))]
    began = time.monotonic()
    found = fuzz(names, cases, values.seed)
    if values.case:
        print(json.dumps(found[0], indent=1))
        return
    from benchmarks import machine
    from experiments.runtime.workdir import surroundings, write_json

    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
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
        "examples": _examples(found),
    }
    out = Path(values.out)
    out.parent.mkdir(parents=True, exist_ok=True)
    write_json(out, result)
    out.with_suffix(".md").write_text(table(result), encoding="utf-8")
    print(table(result))
    if result["findings"]:
        raise SystemExit(1)


def _examples(found: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The first message of each reader and kind of damage that was refused: what a user reads."""
    first: dict[tuple[str, str], dict[str, Any]] = {}
    for case in found:
        if case["result"] == "refused":
            first.setdefault((case["reader"], case["kind"]), case)
    return list(first.values())


if __name__ == "__main__":
    from absl import app as program
    from absl import flags as options

    options.DEFINE_integer("cases", 2400, "how many in all")
    options.DEFINE_string("only", "", "readers, separated by semicolons; all by default")
    options.DEFINE_integer("seed", 0, "of the damage")
    options.DEFINE_string("case", "", "one case again, as READER NUMBER")
    options.DEFINE_string("out", "results/reliability/fuzz.json", "the record; a table goes beside it")
    options.DEFINE_string("work", "", "be a worker, with this folder")
    program.run(main)
