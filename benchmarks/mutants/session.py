"""Tests mutants in several copies of a project at once, and keeps what is finished."""

import hashlib
import queue
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.mutants.areas import area_of, helpers_of, tests_of, tests_of_area
from benchmarks.mutants.records import Lines
from benchmarks.mutants.sites import Mutant, Project
from benchmarks.mutants.trials import SLOWER, START, Copy, Run
from experiments.runtime.workdir import commit_of

UNKNOWN = 200.0
"""Seconds that tests are taken to need if they have not been measured."""
LONGEST = 3600.0
"""Seconds that the tests of an area may take without a mutant."""


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
        files = project.files()
        self._commit = commit_of(project.root)
        self._files = [name for name in files if name.endswith(".py")]
        self._tests = {name: project.text(name) for name in self._files if name.startswith("tests/")}
        self._copies: queue.Queue[Copy] = queue.Queue()
        self._all: list[Copy] = []
        for job in range(jobs):
            copy = Copy(project, folder / f"copy{job}", compiled)
            copy.check_imports(packages)
            self._all.append(copy)
            self._copies.put(copy)

    def state(self, area: str, path: str = "") -> str:
        """Returns a hash of the tests of an area and, if given, of a file: a result holds for one state."""
        names = (*tests_of_area(area, self._tests, self._files), *helpers_of(area, self._tests))
        texts = [self._tests[name] for name in names]
        texts += [self._project.text(path)] if path else []
        return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:12]

    def normal(self, area: str) -> dict[str, Any]:
        """Returns the line of an area without a mutant, measured now if it is not there.

        Raises:
            RuntimeError: its tests do not pass.
        """
        state = self.state(area)
        if (line := self._lines.find(area=area, state=state)) is not None:
            return line
        print(f"{area}: its tests without a mutant", flush=True)
        tests = tests_of_area(area, self._tests, self._files)
        copy = self._copies.get()
        try:
            run, seconds = copy.measure(tests, area, LONGEST)
        finally:
            self._copies.put(copy)
        if run.how:
            raise RuntimeError(f"{area}: tests fail without a mutant: {run.how} {run.by}\n{run.output}")
        files = {name: round(value, 1) for name, value in seconds.items()}
        line = {"area": area, "state": state, "seconds": run.seconds, "files": files}
        self._lines.add({**line, "commit": self._commit})
        return self._lines.lines[-1]

    def test(self, mutant: Mutant, *, again: bool = False) -> dict[str, Any]:
        """Returns the line of a mutant.

        It is tested now if there is no line for the present state, or `again`; then the line is not kept, and
        has the output of the tests.
        """
        area = area_of(mutant.path)
        state = self.state(area, mutant.path)
        if not again and (line := self._lines.find(id=mutant.id, state=state)) is not None:
            return line
        normal = self._lines.find(area=area, state=self.state(area))
        copy = self._copies.get()
        try:
            run = Run("", "", 0.0, "")
            with copy.changed(mutant):
                for tests in tests_of(mutant.path, self._tests):
                    if tests and not run.how:
                        seconds = sum(normal["files"][name] for name in tests) if normal else UNKNOWN
                        limit = START + SLOWER * seconds
                        part = copy.run(tests, area, limit)
                        run = part._replace(seconds=run.seconds + part.seconds)
        finally:
            self._copies.put(copy)
        line = {"id": mutant.id, "path": mutant.path, "line": mutant.line, "operator": mutant.operator}
        line |= {"diff": mutant.diff(self._project.text(mutant.path)), "how": run.how, "by": run.by}
        line |= {"seconds": round(run.seconds, 1), "state": state, "commit": self._commit}
        if again:
            return {**line, "output": run.output}
        self._lines.add(line)
        return line

    def close(self) -> None:
        """Ends what is running."""
        for copy in self._all:
            copy.close()
