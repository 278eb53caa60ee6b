"""One case of the fuzz: damages a file, calls its reader and observes the reader's actions."""

import dataclasses
import os
import random
import re
import shutil
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.reliability import damage
from benchmarks.reliability.reader import Reader

REFUSED, SAME, READ = "refused", "same", "read"
"""An error that names the file; the same meaning; another meaning, which the format cannot detect."""
SLOW = 10.0
"""Seconds of processor time after which a reader counts as hanging."""
_STARTS = ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork", "os.forkpty")
_NETWORK = ("socket.connect", "urllib.Request")


@dataclasses.dataclass(frozen=True)
class Outcome:
    """The outcome of a case: the kind of damage, the file, the result, and a message about it.

    The result is `REFUSED`, `SAME` or `READ`; any other result is a finding.
    """

    kind: str
    file: str
    result: str
    message: str = ""


class Watch:
    """A listener to Python's audit events during a read: processes started, code executed, files written."""

    def __init__(self):
        """Adds an audit hook, which Python cannot remove again."""
        self._folder: str | None = None
        self._seen: list[str] = []
        self._trusted = tuple(
            {os.path.realpath(path) for path in (sys.prefix, sys.base_prefix, *sys.path) if path}
        )
        sys.addaudithook(self._hear)

    @contextmanager
    def over(self, folder: Path) -> Iterator[list[str]]:
        """Collects forbidden events while files in a folder are read."""
        self._seen, self._folder = [], os.path.realpath(folder)
        try:
            yield self._seen
        finally:
            self._folder = None

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self._folder is None:
            return
        if event in _STARTS or event in _NETWORK:
            self._seen.append(f"{event} {arguments[:2]!r}"[:200])
        elif event == "exec":
            # Modules imported late and code that libraries generate ("<string>") are allowed. Other code must
            # come from a file that was read.
            name = getattr(arguments[0], "co_filename", "")
            known = name.startswith(("<frozen", "<string>", "<attrs", "<jaxtyping")) or self._known(name)
            if not known:
                self._seen.append(f"exec of code from {name!r}")
        elif event == "pickle.find_class" and arguments[0] in ("os", "posix", "nt", "builtins", "subprocess"):
            self._seen.append(f"pickle.find_class {arguments!r}")
        elif event == "open" and isinstance(arguments[0], str | bytes | os.PathLike):
            path, mode, flags = (*arguments, None, None)[:3]
            writing = isinstance(mode, str) and set(mode) & set("wax+")
            writing = writing or (isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR))
            where = os.path.realpath(os.fsdecode(path))
            if writing and not where.startswith((self._folder, "/dev/null", "/dev/shm")):
                self._seen.append(f"open for writing: {where}")

    def _known(self, name: str) -> bool:
        where = os.path.realpath(name)
        inside = self._folder is not None and where.startswith(self._folder)
        return where.startswith(self._trusted) and not inside


def harm(
    reader: Reader, folder: Path, others: list[Path], number: int, draw: random.Random
) -> tuple[str, Path]:
    """Damages one of a reader's files.

    Returns:
        The kind of damage, and the file.
    """
    files = reader.files(folder)
    kind, path = damage.chosen(number), draw.choice(files)
    if kind == damage.PLANTED and not (planted := reader.planted(folder)):
        kind = "noise in a range"
    if kind in (damage.SWAPPED, damage.GONE) and not others:
        kind = "cut"
    if reader.checked:  # a whole file of the same kind is not damaged
        others = [other for other in others if other.suffix != path.suffix]
    content = path.read_bytes()
    if kind == damage.GONE:
        path.unlink()
    elif kind == damage.PLANTED:
        path.write_bytes(draw.choice(planted))
    elif kind == damage.SWAPPED:
        path.write_bytes(draw.choice(others).read_bytes())
    else:
        path.write_bytes(damage.damaged(content, kind, draw) if content else b"\0")
    return kind, path


def attempt(
    reader: Reader,
    valid: Path,
    meaning: Any,
    room: Path,
    others: list[Path],
    number: int,
    seed: int,
    watch: Watch,
) -> Outcome:
    """Runs one case in the folder `room`, from the valid files and their meaning.

    `others` are files of other readers, for swapping; `watch` observes the reader.
    """
    draw = random.Random(f"{seed} {reader.name} {number}")  # the only randomness of a case
    folder = room / "case"
    shutil.copytree(valid, folder)
    try:
        kind, path = harm(reader, folder, others, number, draw)
        before = _contents(folder)
        began = time.process_time()
        with watch.over(folder) as seen:
            result, message = _called(reader, folder, meaning)
        if time.process_time() - began > SLOW:
            result, message = "hang", f"{time.process_time() - began:.0f} s"
        if seen:
            result, message = "executed", "; ".join(seen)
        if problem := _left(reader, folder, before, result):
            result, message = "half-written", problem
        return Outcome(kind, str(path.relative_to(folder)), result, message.replace(str(folder), "FOLDER"))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _called(reader: Reader, folder: Path, meaning: Any) -> tuple[str, str]:
    try:
        found = reader.read(folder)
    except (ValueError, FileNotFoundError, *reader.errors) as error:
        message = str(error)
        if not message.strip() or not _names(message, folder):
            return "no name", f"{type(error).__name__}: {message}"[:600] + _where(error)
        return REFUSED, message[:300]
    except MemoryError as error:
        return "memory", f"{error!r}{_where(error)}"
    except BaseException as error:
        return "other error", f"{type(error).__name__}: {error}"[:600] + _where(error)
    if reader.same(meaning, found):
        return SAME, ""
    return ("undetected", f"{found!r}"[:300]) if reader.checked else (READ, "")


def _names(message: str, folder: Path) -> bool:
    return str(folder) in message or any(
        re.search(rf"(?<!\w){re.escape(path.name)}(?!\w)", message) for path in folder.rglob("*")
    )


def _where(error: BaseException) -> str:
    frames = [
        frame for frame in traceback.extract_tb(error.__traceback__) if "site-packages" not in frame.filename
    ]
    return f" at {Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""


def _contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def _left(reader: Reader, folder: Path, before: dict[str, bytes], result: str) -> str:
    """Describes files in the folder that were wrongly changed or written; "" if there are none."""
    after = _contents(folder)
    allowed = {str(path.relative_to(folder)) for pattern in reader.writes for path in folder.glob(pattern)}
    changed = sorted(name for name in before if name not in allowed and after.get(name) != before[name])
    made = sorted(name for name in after if name not in before)
    if changed and not reader.writes:
        return f"changed: {', '.join(changed[:3])}"
    if strange := [name for name in made if name not in allowed]:
        return f"left behind: {', '.join(strange[:3])}"
    if result == REFUSED and [name for name in made if name in allowed]:
        if reader.whole is None:
            return f"written although refused: {', '.join(made[:3])}"
        try:
            reader.whole(folder)
        except Exception as error:
            return f"not whole: {error}"[:300]
    return ""


def warm(reader: Reader, valid: Path, room: Path, watch: Watch) -> Any:
    """Reads the valid files twice and returns their meaning.

    Raises:
        RuntimeError: the second read gives another meaning, or the files cannot be read.
    """
    meanings = []
    for _ in range(2):
        folder = room / "case"
        shutil.copytree(valid, folder)
        try:
            meanings.append(reader.read(folder))
        except Exception as error:
            raise RuntimeError(f"{reader.name}: the valid files cannot be read") from error
        finally:
            shutil.rmtree(folder)
    if not reader.same(meanings[0], meanings[1]):
        raise RuntimeError(f"{reader.name}: two reads of the valid files differ in meaning")
    return meanings[0]
