"""What is kept: a line for each finished mutant, explanations written by hand, and a page made from both."""

import collections
import json
import threading
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import machine
from benchmarks.mutants.sites import Mutant, Project
from logic_zoo.writing import write_whole

KINDS = ("equivalent", "survivor")


class Explanation(NamedTuple):
    """Why no test can notice a mutant ("equivalent"), or why none does ("survivor")."""

    kind: str
    reason: str


def explanations(file: Path, project: Project) -> dict[str, Explanation]:
    """Reads the explanations of mutants of a project; returns them by id.

    Raises:
        ValueError: one has no reason, or no such mutant exists any more; the message names the file.
    """
    listed = tomllib.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    entries = [(kind, entry) for kind in KINDS for entry in listed.get(kind, ())]
    found = project.mutants({entry.get("path", "") for _, entry in entries})
    mutants = {mutant.id: mutant for mutant in found}
    explained = {}
    for kind, entry in entries:
        where = f"{file}: {kind} {entry.get('id')!r}"
        mutant = mutants.get(entry.get("id", ""))
        if not str(entry.get("reason", "")).strip():
            raise ValueError(f"{where}: got no reason, expected a sentence")
        if mutant is None:
            raise ValueError(f"{where}: got no mutant with this id in {entry.get('path')}, expected one")
        expected = {"path": mutant.path, "before": mutant.before, "after": mutant.after}
        for name, value in expected.items():
            if entry.get(name) != value:
                raise ValueError(f"{where}: {name}: got {entry.get(name)!r}, expected {value!r}")
        explained[mutant.id] = Explanation(kind, entry["reason"])
    return explained


def entry(kind: str, mutant: Mutant, reason: str = "") -> str:
    """Returns an entry for the file of explanations, whose reason is to be written."""
    fields = {name: getattr(mutant, name) for name in ("id", "path", "before", "after")} | {"reason": reason}
    lines = [f"{name} = {json.dumps(value, ensure_ascii=False)}" for name, value in fields.items()]
    return "\n".join([f"[[{kind}]]", *lines, ""])


class Lines:
    """A file of JSON lines that is continued: what was finished before an interruption is read back."""

    def __init__(self, file: Path):
        """Reads the lines of `file`; an incomplete last line, of a run that was killed, is dropped."""
        self._file, self._lock = file, threading.Lock()
        text = file.read_text(encoding="utf-8") if file.exists() else ""
        whole = text[: text.rfind("\n") + 1]
        if whole != text:
            write_whole(file, whole)
        self.lines: list[dict[str, Any]] = [json.loads(line) for line in whole.splitlines()]

    def find(self, **fields: Any) -> dict[str, Any] | None:
        """Returns the last line with these values."""
        fitting = (line for line in reversed(self.lines) if fields.items() <= line.items())
        return next(fitting, None)

    def add(self, line: dict[str, Any]) -> None:
        """Appends a line."""
        with self._lock:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            with self._file.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
            self.lines.append(line)

    def keep(self, lines: Sequence[dict[str, Any]]) -> None:
        """Replaces the file by some lines."""
        write_whole(self._file, "".join(json.dumps(line) + "\n" for line in lines))
        self.lines = list(lines)


def outcome(line: Mapping[str, Any], explained: Mapping[str, Explanation]) -> str:
    """Returns "killed", "timeout", "equivalent" or "survived"."""
    if line["how"]:
        return "timeout" if line["how"] == "timeout" else "killed"
    found = explained.get(line["id"])
    return "equivalent" if found and found.kind == "equivalent" else "survived"


OUTCOMES = ("killed", "timeout", "equivalent", "survived")


def noticed(counts: Mapping[str, int]) -> str:
    """Returns the percentage that tests notice, of those that are not equivalent."""
    able = sum(counts[name] for name in OUTCOMES) - counts["equivalent"]
    return f"{100 * (counts['killed'] + counts['timeout']) / able:.1f} %" if able else "-"


def page(
    lines: Sequence[dict[str, Any]],
    normal: Sequence[dict[str, Any]],
    explained: Mapping[str, Explanation],
    head: Mapping[str, Any],
) -> str:
    """Returns the record as a Markdown page."""
    total = collections.Counter(outcome(line, explained) for line in lines)
    tables = []
    for title in ("package", "operator"):
        counts: dict[str, collections.Counter] = collections.defaultdict(collections.Counter)
        for line in lines:
            name = line["operator"] if title == "operator" else line["path"].partition("/")[0]
            counts[name][outcome(line, explained)] += 1
        names = counts if title == "package" else sorted(counts)
        rows = [
            (name, counts[name].total(), *(counts[name][what] for what in OUTCOMES), noticed(counts[name]))
            for name in names
        ]
        tables.append(machine.markdown((title, "drawn", *OUTCOMES, "noticed"), rows))
    rows = [(f"tests/{one['group']}", len(one["files"]), f"{one['seconds']:.0f}") for one in normal]
    passed = machine.markdown(("tests", "files", "seconds"), rows)
    made = head["machine"]
    left_out = ", ".join(f"`{path}`" for path in head["left_out"])
    without = f"Their tests are skipped without PyTorch: {left_out} are left out.\n" if left_out else ""
    listed = []
    for name, title in (("survived", "Not noticed"), ("equivalent", "Equivalent")):
        for line in lines:
            if outcome(line, explained) == name:
                reason = explained[line["id"]].reason if line["id"] in explained else "Not explained yet."
                where = f"### {title}: `{line['id']}`, {line['operator']}, `{line['path']}:{line['line']}`"
                listed.append(f"{where}\n\n```diff\n{line['diff']}\n```\n\n{reason}\n")
    return f"""# Mutants

`{head["command"]}`, {made["date"]}, {made["cpus"]} CPU cores, jax {made["versions"]["jax"]}, \
python {made["versions"]["python"]}, commit {head["commit"]}; {head["seconds"] / 60:.0f} minutes of tests.

{len(lines)} single changes to the code, each tested with the default tests of its area: {total["killed"]} \
killed by a failing test, {total["timeout"]} by the time limit, {total["equivalent"]} equivalent, \
{total["survived"]} survived. **{noticed(total)}** of those that are not equivalent were noticed.
{without}
{tables[0]}
{tables[1]}
The default tests without a change, all of which pass:

{passed}
{chr(10).join(listed)}"""


def summary(line: Mapping[str, Any], explained: Mapping[str, Explanation]) -> str:
    """Returns a line for the terminal."""
    by = f" by {line['by']}" if line["by"] else f" ({line['how']})" if line["how"] else ""
    where = f"{line['id']} {line['path']}:{line['line']} [{line['operator']}]"
    return f"{outcome(line, explained)}: {where}{by}, {line['seconds']:.0f} s"
