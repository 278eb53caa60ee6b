"""Generation of large question sets into text files, using all cores.

The speed of modules differs by a factor of a thousand, so the work is divided into parts of about a minute
each, scheduled longest first. A part is a function of the seed and its number and is written atomically: a
run that was killed can be started again and ends with the same files, whatever the number of processes.
"""

import concurrent.futures
import contextlib
import dataclasses
import functools
import importlib.metadata
import importlib.util
import json
import shutil
import sys
import time
from collections.abc import Iterable
from pathlib import Path

import numpy as np

import logic_zoo
from logic_zoo import workers
from logic_zoo.writing import whole, write_whole
from tp_transformer.mathematics.modules import LEVELS, SPLITS, TEST
from tp_transformer.mathematics.parts import Part, part_size, parts_of
from tp_transformer.mathematics.questions import draw, fingerprint
from tp_transformer.mathematics.sources import Generator, TextDirectory
from tp_transformer.mathematics.text import TextQuestions, write_questions

MANIFEST = "generation.json"
_PARTS = ".parts"  # folder of unfinished work, removed at the end
_EXCLUDED = "test_questions.npy"
_DRAWS = ("mathematics-dataset", "numpy", "sympy")  # packages whose versions affect the questions of a seed


def generate(
    directory: str | Path,
    source: Generator,
    *,
    processes: int | None = None,
    show: bool = True,
) -> TextDirectory:
    """Writes a set of questions as text files `<split>/<module>.txt`, the layout of the published v1.0.

    The test splits are generated first and excluded from training. The files contain the questions of
    `source`. An interrupted generation continues when started again; a finished set is left unchanged.

    Scripts that call this need `if __name__ == "__main__":` around the call, as Python's multiprocessing
    requires.

    Args:
        directory: output folder; created if it does not exist.
        source: numbers of questions, modules, and the seed.
        processes: number of processes; all cores by default. With 1, everything runs in this process.
        show: whether to show progress on standard error.

    Raises:
        ValueError: the folder contains other files, or a set with another seed, size or generator version; or
            `processes` is less than 1.
        RuntimeError: another process is generating into the same folder, or a worker was killed.
    """
    if processes is None:
        processes = workers.cores()
    if processes < 1:
        raise ValueError(f"processes: got {processes}, expected at least 1")
    root = Path(directory).expanduser()
    root.mkdir(parents=True, exist_ok=True)
    with workers.locked(root):
        _agree(root, source)
        for leftover in root.glob("*/.*.tmp"):  # from a process that was killed while writing
            leftover.unlink()
        tests = [part for split in TEST for part in parts_of(source, split)]
        training = [part for level in LEVELS for part in parts_of(source, level)]
        progress = _Progress([*tests, *training], show)
        one = contextlib.nullcontext(None)
        with contextlib.closing(progress), one if processes == 1 else workers.pool(processes) as pool:
            _make(root, tests, source.seed, None, pool, progress)
            if any(not _final(root, part).is_file() for part in training):
                _make(root, training, source.seed, _write_excluded(root, tests), pool, progress)
            else:
                progress.add(*training)
        shutil.rmtree(root / _PARTS, ignore_errors=True)
    return TextDirectory(root)


def _final(root: Path, part: Part) -> Path:
    return root / part.split / f"{part.module}.txt"


def _temporary(root: Path, part: Part) -> Path:
    return root / _PARTS / part.split / part.module / f"{part.number:05d}.txt"


def _agree(root: Path, source: Generator) -> None:
    """Records what is being generated, or checks that it matches an earlier record."""
    with logic_zoo.extra("data"):
        # Other versions may draw or print differently, which would make the set inconsistent.
        versions = {name: importlib.metadata.version(name) for name in _DRAWS}
    wanted = {
        **dataclasses.asdict(source),
        "names": list(source.names),
        "extrapolation": list(source.extrapolation),
        "versions": versions,
        "parts": fingerprint(
            repr([part_size(split, name) for split in SPLITS for name in source.modules(split)])
        ),
    }
    path = root / MANIFEST
    if not path.is_file():
        if found := sorted(entry.name for entry in root.iterdir() if not entry.name.startswith(".")):
            raise ValueError(
                f"directory: got {root} with {', '.join(found[:5])}, expected an empty or generated one"
            )
        write_whole(path, json.dumps(wanted, indent=1) + "\n")
        return
    try:
        begun = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(begun, dict):
            raise ValueError(f"got {begun!r:.40}")
    except ValueError as error:
        raise ValueError(f"{path}: damaged, expected a record of the generation: {error}") from error
    finished = all(_final(root, part).is_file() for split in SPLITS for part in parts_of(source, split))
    different = {
        name: (begun.get(name), value)
        for name, value in wanted.items()
        if begun.get(name) != value and not (finished and name in ("versions", "parts"))
    }
    if different:
        listed = "; ".join(f"{name}: {old} there, {new} requested" for name, (old, new) in different.items())
        raise ValueError(
            f"directory: got {root}, which contains another set ({listed}), expected another one"
        )


def _write_excluded(root: Path, tests: Iterable[Part]) -> Path:
    """Saves the fingerprints of all test questions for the workers."""
    files = dict.fromkeys(_final(root, part) for part in tests)
    prints = {fingerprint(question) for file in files for question, _ in TextQuestions(file)}
    path = root / _PARTS / _EXCLUDED
    path.parent.mkdir(exist_ok=True)
    np.save(path, np.fromiter(prints, np.uint64, len(prints)))
    return path


def _make(
    root: Path,
    parts: list[Part],
    seed: int,
    excluded: Path | None,
    pool: concurrent.futures.Executor | None,
    progress: "_Progress",
) -> None:
    """Makes the missing parts, and the file of each module once all its parts exist."""
    of_file: dict[Path, list[Part]] = {}
    for part in parts:
        of_file.setdefault(_final(root, part), []).append(part)
    missing: dict[Path, set[Part]] = {}
    for file, belonging in of_file.items():
        there = file.is_file()
        missing[file] = {part for part in belonging if not (there or _temporary(root, part).is_file())}
        progress.add(*(part for part in belonging if part not in missing[file]))
        if missing[file]:
            _temporary(root, belonging[0]).parent.mkdir(parents=True, exist_ok=True)
        elif not there:
            _merge(root, file, belonging)
    todo = sorted((part for some in missing.values() for part in some), key=lambda p: (-p.seconds, p))
    if pool is None:
        made = (_make_part(root, part, seed, excluded) for part in todo)
    else:
        futures = [pool.submit(_make_part, root, part, seed, excluded) for part in todo]
        made = (future.result() for future in concurrent.futures.as_completed(futures))
    for part in made:
        progress.add(part, made_now=True)
        file = _final(root, part)
        missing[file].discard(part)
        if not missing[file]:
            _merge(root, file, of_file[file])


@functools.cache
def _read_excluded(path: Path | None) -> frozenset[int]:
    return frozenset() if path is None else frozenset(np.load(path).tolist())


def _make_part(root: Path, part: Part, seed: int, excluded: Path | None) -> Part:
    """Draws and writes one part in a worker process."""
    questions = draw(
        part.split, part.module, part.count, seed=seed, part=part.number, exclude=_read_excluded(excluded)
    )
    write_questions(_temporary(root, part), questions)
    return part


def _merge(root: Path, file: Path, parts: list[Part]) -> None:
    """Joins the parts of a module, given in order, into one file, and removes them."""
    file.parent.mkdir(exist_ok=True)
    paths = [_temporary(root, part) for part in parts]
    for part, path in zip(parts, paths, strict=True):
        if (found := path.read_bytes().count(b"\n")) != 2 * part.count:
            raise ValueError(
                f"{path}: got {found} lines, expected {2 * part.count}; remove the file and start again"
            )
    with whole(file) as temporary, temporary.open("wb") as joined:
        joined.writelines(path.read_bytes() for path in paths)
    shutil.rmtree(paths[0].parent)


class _Progress:
    """Progress bar on a terminal, a line every 30 s elsewhere; measured in estimated time, not questions."""

    EVERY = 30.0

    def __init__(self, parts: list[Part], show: bool):
        self._total = sum(part.seconds for part in parts)
        self._questions = sum(part.count for part in parts)
        self._done = self._made = 0.0
        self._have = 0
        self._start = self._last = time.monotonic()
        terminal = show and sys.stderr.isatty() and importlib.util.find_spec("tqdm") is not None
        self._lines = show and not terminal
        self._bar = None
        if terminal:
            from tqdm import tqdm  # optional: without it, progress is printed in lines

            self._bar = tqdm(
                total=self._total,
                desc="generating",
                dynamic_ncols=True,
                smoothing=0.1,
                bar_format="{desc}: {percentage:3.0f}%|{bar}| {elapsed}<{remaining}{postfix}",
            )

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()

    def add(self, *parts: Part, made_now: bool = False) -> None:
        """Counts parts as done, whether made now or earlier."""
        seconds = sum(part.seconds for part in parts)
        self._done += seconds
        self._made += seconds * made_now
        self._have += sum(part.count for part in parts)
        state = f"{self._have:,} of {self._questions:,} questions"
        if self._bar is not None:
            self._bar.update(seconds)
            self._bar.set_postfix_str(state)
        now = time.monotonic()
        due = now - self._last >= self.EVERY or self._have == self._questions
        if self._lines and made_now and due:
            self._last = now
            left = (self._total - self._done) * (now - self._start) / self._made
            print(f"generating: {state}, {left:.0f} s left", file=sys.stderr, flush=True)
