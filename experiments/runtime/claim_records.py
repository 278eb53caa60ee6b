"""The runs that a comparison needs, and the record of those that are done: a small file to continue from."""

import dataclasses
import datetime
import fcntl
import hashlib
import json
import math
import os
import statistics
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from experiments.runtime import claims
from experiments.runtime.claims import Comparison, Model
from logic_zoo.writing import whole

SEARCH, REPORTED, AGAIN = "search", "reported", "again"
"""The kinds of runs in a record; those of the last kind repeat a reported run."""
DECLARATION, EXTENSION = "declaration", "extension"
"""The other kinds of lines. An extension is a declaration that adds models or claims to the last one."""


def today() -> str:
    """Returns the date of a line that is written now."""
    return datetime.datetime.now(datetime.UTC).date().isoformat()


@dataclasses.dataclass(frozen=True)
class Piece:
    """A run that a comparison needs: a model with some settings, a seed and a number of steps."""

    kind: str
    model: Model
    settings: Mapping[str, Any]
    seed: int
    steps: int

    @property
    def key(self) -> dict[str, Any]:
        """The part of the run's line that says which piece it is."""
        settings = dict(self.settings)
        return {
            "kind": self.kind,
            "model": self.model.name,
            "settings": settings,
            "seed": self.seed,
            "steps": self.steps,
        }

    @property
    def config(self) -> Any:
        """The config of the run, but for the folder of data."""
        return self.model.configured(self.settings, self.seed, self.steps)

    @property
    def folder(self) -> str:
        """The name of its directory, the same whenever it is continued."""
        text = json.dumps({**self.key, "config": claims.settled(self.config)}, sort_keys=True)
        return f"{self.kind}-{self.seed}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"


class Record:
    """The record of a comparison: its declarations and finished runs, in the order in which they came."""

    def __init__(self, out: Path, name: str):
        """Reads the record in the folder of results, if there is one.

        Raises:
            ValueError: a damaged line; file and line number are named.
        """
        self.path = out / "claims" / f"{name}.jsonl"
        self.lines = self._read()

    def _read(self) -> list[dict[str, Any]]:
        lines: list[dict[str, Any]] = []
        texts = self.path.read_text(encoding="utf-8").splitlines() if self.path.exists() else []
        for number, text in enumerate(texts, 1):
            try:
                line = json.loads(text)
                if line["kind"] not in (SEARCH, REPORTED, AGAIN, DECLARATION, EXTENSION):
                    raise ValueError(f"kind: got {line['kind']!r}")
            except (ValueError, KeyError, TypeError) as error:
                raise ValueError(f"{self.path}, line {number}: not a line of a record ({error!r})") from error
            lines.append(line)
        return lines

    def add(self, line: Mapping[str, Any]) -> None:
        """Appends a line, whole or not at all, to what is in the file by now: others may run other seeds."""
        new = json.loads(json.dumps(line, allow_nan=False))
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with Held(self.path.parent, wait=True):
            self.lines = [*self._read(), new]
            with whole(self.path) as temporary:
                text = "".join(json.dumps(line) + "\n" for line in self.lines)
                temporary.write_text(text, encoding="utf-8")

    @property
    def declared(self) -> dict[str, Any] | None:
        """The line with which the last attempt was declared; None before the first reported seed."""
        return next((line for line in reversed(self.lines) if line["kind"] == DECLARATION), None)

    @property
    def declarations(self) -> list[dict[str, Any]]:
        """The line of `declared` and those of its extensions; [] before the first reported seed."""
        if self.declared is None:
            return []
        later = self.lines[self.lines.index(self.declared) :]
        return [line for line in later if line["kind"] in (DECLARATION, EXTENSION)]

    def fixed_in(self, name: str) -> str | None:
        """The commit of the first declaration of the last attempt that has the claim of that id; or None."""
        for line in self.declarations:
            if name in {claim["id"] for claim in line["declaration"]["claims"]}:
                return line["commit"]
        return None

    def find(self, piece: Piece) -> dict[str, Any] | None:
        """Returns the line of a finished run; None if it is missing, or had another config or declaration."""
        key, start = piece.key, self.lines.index(self.declared) if self.declared else 0
        for line in self.lines[start if piece.kind == REPORTED else 0 :]:
            if {name: line.get(name) for name in key} == key and not claims.changes(
                line["config"], piece.config
            ):
                return line
        return None

    def reported_seeds(self) -> set[int]:
        """The seeds of all reported runs, of every declaration."""
        return {line["seed"] for line in self.lines if line["kind"] == REPORTED}


def search_pieces(comparison: Comparison) -> Iterator[Piece]:
    """Yields the runs of the search of every model that has several settings."""
    for model in comparison.models:
        steps = comparison.search_steps or next(iter(model.budgets.values()))
        for settings in model.search if len(model.search) > 1 else ():
            for seed in comparison.search_seeds:
                yield Piece(SEARCH, model, settings, seed, steps)


def reported_pieces(comparison: Comparison, chosen: Mapping[str, Mapping[str, Any]]) -> Iterator[Piece]:
    """Yields the reported runs, given each model's setting, seed by seed: what is done can be compared."""
    for seed in comparison.seeds:
        for model in comparison.models:
            if seed in comparison.seeds_of(model):
                for steps in dict.fromkeys(model.budgets.values()):
                    yield Piece(REPORTED, model, chosen[model.name], seed, steps)


def choose(comparison: Comparison, record: Record) -> dict[str, Mapping[str, Any]]:
    """Returns the setting of each model with the best mean over the search seeds; the first of equals.

    A setting with which a run diverged is worse than all others.
    """
    sign = 1 if comparison.search_higher_is_better else -1
    values: dict[tuple[str, str], list[float]] = {}
    for piece in search_pieces(comparison):
        if line := record.find(piece):
            diverged = "diverged" in line
            value = -math.inf if diverged else sign * line["measurements"][comparison.search_by]
            values.setdefault((piece.model.name, json.dumps(piece.settings)), []).append(value)
    return {
        model.name: max(
            model.search,
            key=lambda settings, name=model.name: statistics.fmean(
                values.get((name, json.dumps(settings)), [-math.inf])
            ),
        )
        for model in comparison.models
    }


class Held:
    """Holds a folder for this process; without `wait`, refuses one that another process holds."""

    def __init__(self, folder: Path, *, wait: bool):
        self.folder, self.wait = folder, wait

    def __enter__(self) -> None:
        self.file = os.open(self.folder, os.O_RDONLY)
        try:
            fcntl.flock(self.file, fcntl.LOCK_EX | (0 if self.wait else fcntl.LOCK_NB))
        except BlockingIOError:
            os.close(self.file)
            raise ValueError(
                f"{self.folder}: got a folder that another process uses, expected a free one"
            ) from None

    def __exit__(self, *_: object) -> None:
        os.close(self.file)
