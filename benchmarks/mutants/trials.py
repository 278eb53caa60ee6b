"""Runs tests in a copy of the repository, with one mutant at a time."""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

from benchmarks.mutants.areas import group_of
from benchmarks.mutants.sites import Mutant, Project

START = 60.0
"""Seconds that a run of tests may take in addition to `SLOWER` times its normal duration."""
SLOWER = 4.0
PYTEST = ("-m", "pytest", "-x", "-q", "-m", "not slow", "-p", "no:cacheprovider")
KILLED = {1: "failed", 2: "error", 3: "error", 4: "error"}
"""What pytest's exit statuses mean: a failed test, or an error while tests are collected or loaded."""
NONE = 5
"""Pytest's exit status if no test is left, for example because all are slow."""
FIRST = re.compile(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", re.MULTILINE)


class Run(NamedTuple):
    """What a run of tests came to.

    Attributes:
        how: "" if all tests passed, or how they failed: "failed", "error", "crashed" or "timeout".
        by: the first test that failed.
        seconds: the time it took.
        output: its last lines.
    """

    how: str
    by: str
    seconds: float
    output: str


class Copy:
    """A copy of a repository's tracked files in which tests run; the repository itself is never changed."""

    def __init__(self, project: Project, folder: Path, compiled: Path):
        """Copies the files to `folder`; `compiled` gets a folder of programs for each group."""
        self._project, self._folder, self._compiled = project, folder, compiled
        self._processes: set[subprocess.Popen] = set()
        self._closed = threading.Event()
        self._kept: dict[Path, tuple[int, int]] = {}
        self.restore()

    def restore(self) -> None:
        """Writes what is missing or has changed, and removes what tests have left."""
        known = {self._folder / name for name in self._project.contents}
        known |= {parent for path in known for parent in path.parents}
        for path in sorted(self._folder.rglob("*")):
            if path not in known and "__pycache__" not in path.parts:
                shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
        for name in self._project.contents:
            path = self._folder / name
            if not path.exists() or _stamp(path) != self._kept.get(path):
                self._write(name, self._project.contents[name])
                self._kept[path] = _stamp(path)

    def _write(self, name: str, content: bytes) -> None:
        path, original = self._folder / name, self._project.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        if original.exists():
            shutil.copymode(original, path)
        for stale in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
            stale.unlink()  # its date and size may be those of the new text

    def check_imports(self, packages: Sequence[str]) -> None:
        """Raises RuntimeError if packages are imported from elsewhere, as an editable install might do."""
        code = "\n".join(f"import {name}; print({name}.__path__[0])" for name in packages)
        command = [sys.executable, "-c", code]
        done = subprocess.run(
            command, cwd=self._folder, env=self._environment(), capture_output=True, text=True, check=False
        )
        expected = [str(self._folder / name) for name in packages]
        if done.stdout.split() != expected:
            raise RuntimeError(f"packages: got {done.stdout or done.stderr}, expected them in {self._folder}")

    def _environment(self) -> dict[str, str]:
        path = os.pathsep.join(filter(None, [str(self._folder), os.environ.get("PYTHONPATH", "")]))
        return {**os.environ, "PYTHONPATH": path}

    @contextlib.contextmanager
    def changed(self, mutant: Mutant) -> Iterator[None]:
        """Applies a mutant, and takes back all changes at the end."""
        try:
            self._write(mutant.path, mutant.apply(self._project.text(mutant.path)).encode())
            yield
        finally:
            self.restore()

    def run(self, tests: Sequence[str], limit: float) -> Run:
        """Runs tests until the first one fails, with a limit in seconds.

        The programs that were compiled without a mutant are there to be read; what this run adds is thrown
        away, since it may be killed while it writes.
        """
        with tempfile.TemporaryDirectory(prefix="run.", dir=self._compiled) as programs:
            for group in {group_of(test) for test in tests}:
                if (shared := self._of_group(group)).is_dir():
                    shutil.copytree(shared, programs, copy_function=_link, dirs_exist_ok=True)
            return self._pytest(tests, Path(programs), limit)

    def measure(self, tests: Sequence[str], group: str, limit: float) -> tuple[Run, dict[str, float]]:
        """Runs a group of tests without a mutant; keeps the programs that are compiled.

        Returns:
            The run, and the seconds of each file of tests.
        """
        with tempfile.TemporaryDirectory(prefix="run.", dir=self._compiled) as folder:
            programs, report = Path(folder) / "programs", Path(folder) / "report.xml"
            programs.mkdir()
            run = self._pytest(tests, programs, limit, f"--junitxml={report}", "-o", "junit_family=xunit1")
            seconds = dict.fromkeys(tests, 0.0)
            if not run.how:
                for case in ElementTree.parse(report).iter("testcase"):
                    seconds[case.attrib["file"]] += float(case.attrib["time"])
                shutil.rmtree(self._of_group(group), ignore_errors=True)
                programs.rename(self._of_group(group))
        return run, seconds

    def _of_group(self, group: str) -> Path:
        return self._compiled / (group.replace("/", ".") or "tests")

    def _pytest(self, tests: Sequence[str], programs: Path, limit: float, *more: str) -> Run:
        command = [sys.executable, *PYTEST, *more, *tests]
        environment = {**self._environment(), "JAX_COMPILATION_CACHE_DIR": str(programs)}
        began = time.monotonic()
        with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as output:
            process = subprocess.Popen(
                command, cwd=self._folder, env=environment, stdout=output, stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip
            self._processes.add(process)
            late = False
            try:
                if self._closed.is_set():
                    raise KeyboardInterrupt
                process.wait(limit)
            except subprocess.TimeoutExpired:
                late = True
            finally:
                _end(process)
                self._processes.discard(process)
            output.seek(0)
            text = output.read()
        if self._closed.is_set():
            raise KeyboardInterrupt
        status, seconds = process.returncode, time.monotonic() - began
        found = FIRST.search(text)
        if late:
            how = "timeout"
        elif status in (0, NONE):
            how = ""
        else:
            how = KILLED.get(status, "crashed")
        return Run(how, found[1] if found and how else "", round(seconds, 1), text[-3000:])

    def close(self) -> None:
        """Ends what is running; later runs end at once."""
        self._closed.set()
        for process in list(self._processes):
            _end(process)


def _end(process: subprocess.Popen) -> None:
    """Kills a process with all that it started, and waits for it."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _stamp(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_mtime_ns, found.st_size


def _link(source: str, target: str) -> None:
    with contextlib.suppress(FileExistsError):  # of another group, with the same content
        os.link(source, target)
