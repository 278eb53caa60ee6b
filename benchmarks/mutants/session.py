"""Tests mutants in several copies of a project at once, and keeps what is finished."""

import contextlib
import hashlib
import itertools
import queue
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.mutants.areas import files_of_group, group_of, tests_of
from benchmarks.mutants.records import Lines
from benchmarks.mutants.sites import Mutant, Project
from benchmarks.mutants.trials import SLOWER, START, Copy, Run
from experiments.runtime.workdir import commit_of

UNKNOWN = 20.0
"""Seconds that a file of tests is taken to need if it has not been measured."""
LONGEST = 3600.0
"""Seconds that a group of tests may take without a mutant."""


class Session:
    """Tests mutants of a project in several copies of it at once."""

    def __init__(
        self,
        project: Project,
        lines: Lines,
        folder: Path,
        compiled: Path,
        *,
        jobs: int,
        packages: Sequence[str],
    ):
        """Makes the copies.

        Args:
            project: the repository.
            lines: what was finished before; results are added.
            folder: an empty folder for the copies.
            compiled: a folder for compiled programs, which later sessions may use.
            jobs: the number of copies.
            packages: what must be imported from the copies.
        """
        self._project, self._lines = project, lines
        compiled.mkdir(parents=True, exist_ok=True)
        self._commit = commit_of(project.root)
        tests = [name for name in project.contents if name.startswith("tests/") and name.endswith(".py")]
        self._tests = {name: project.text(name) for name in tests}
        self._free: queue.Queue[Copy] = queue.Queue()
        self._all: list[Copy] = []
        for job in range(jobs):
            copy = Copy(project, folder / f"copy{job}", compiled)
            copy.check_imports(packages)
            self._all.append(copy)
            self._free.put(copy)

    def state(self, group: str) -> str:
        """Returns a hash of the tests of a group and of their helpers."""
        tests, helpers = files_of_group(group, self._tests)
        return _hash(self._tests[name] for name in (*tests, *helpers))

    def groups(self, mutants: Iterable[Mutant]) -> dict[str, list[str]]:
        """Returns the groups of tests that may run for mutants, and those of each group."""
        found: dict[str, set[str]] = {}
        for path in {mutant.path for mutant in mutants}:
            for test in itertools.chain(*tests_of(path, self._tests)):
                found.setdefault(group_of(test), set()).add(test)
        return {group: sorted(found[group]) for group in sorted(found)}

    def normal(self, group: str, needed: Sequence[str]) -> dict[str, Any]:
        """Returns the line of a group of tests without a mutant, measured now if it is not there.

        Raises:
            RuntimeError: the tests do not pass.
        """
        state = self.state(group)
        line = self._lines.find(group=group, state=state)
        if line is not None and line["files"].keys() >= {*needed}:
            return line
        tests = files_of_group(group, self._tests)[0] if group else needed
        print(f"tests/{group}: {len(tests)} files without a mutant", flush=True)
        with self._copy() as copy:
            run, seconds = copy.measure(tests, group, LONGEST)
            if not run.how:  # again with all programs compiled, as mutants have them
                run = copy.run(tests, LONGEST)._replace(seconds=run.seconds)
        if run.how:
            raise RuntimeError(f"tests/{group}: fail without a mutant: {run.how} {run.by}\n{run.output}")
        files = {name: round(value, 1) for name, value in seconds.items()}
        line = {"group": group, "state": state, "seconds": run.seconds, "files": files}
        self._lines.add({**line, "commit": self._commit})
        return line

    def test(self, mutant: Mutant, *, again: bool = False) -> dict[str, Any]:
        """Returns the line of a mutant.

        It is tested now if there is no line for the present state of file and tests, or `again`; then the
        line is not kept, and has the output of the tests.
        """
        states = {group: self.state(group) for group in self.groups([mutant])}
        state = _hash((self._project.text(mutant.path), *states.values()))
        if not again and (line := self._lines.find(id=mutant.id, state=state)) is not None:
            return line
        seconds: dict[str, float] = {}
        for group in states:
            if (normal := self._lines.find(group=group, state=states[group])) is not None:
                seconds |= normal["files"]
        run = Run("", "", 0.0, "")
        with self._copy() as copy, copy.changed(mutant):
            for tests in tests_of(mutant.path, self._tests):
                if tests and not run.how:
                    limit = START + SLOWER * sum(seconds.get(name, UNKNOWN) for name in tests)
                    part = copy.run(tests, limit)
                    run = part._replace(seconds=run.seconds + part.seconds)
        line = {"id": mutant.id, "path": mutant.path, "line": mutant.line, "operator": mutant.operator}
        line |= {"diff": mutant.diff(self._project.text(mutant.path)), "how": run.how, "by": run.by}
        line |= {"seconds": round(run.seconds, 1), "state": state, "commit": self._commit}
        if again:
            return {**line, "output": run.output}
        self._lines.add(line)
        return line

    @contextlib.contextmanager
    def _copy(self) -> Iterator[Copy]:
        copy = self._free.get()
        try:
            yield copy
        finally:
            self._free.put(copy)

    def close(self) -> None:
        """Ends what is running."""
        for copy in self._all:
            copy.close()


def _hash(texts: Iterable[str]) -> str:
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:12]
