"""The runner of comparisons: searches, reported seeds and the lines of claims, resumable at any moment.

Every run that ends becomes a line of the comparison's record, `claims/NAME.jsonl` in the folder of results,
which is small and meant to be committed: another machine or another day continues from it. Before the first
reported seed the declaration is recorded as well, with the commit that holds it; from then on an edited
declaration is refused, until it names new seeds.
"""

import dataclasses
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax

from experiments.runtime import claim_declaring, claims
from experiments.runtime.claim_publishing import draw, make_line, publish
from experiments.runtime.claim_records import (
    AGAIN,
    SEARCH,
    Held,
    Piece,
    Record,
    choose,
    reported_pieces,
    search_pieces,
    today,
)
from experiments.runtime.claims import Comparison, Run
from experiments.runtime.experiment import Experiment
from experiments.runtime.looping import FitResult, NonFiniteLoss
from experiments.runtime.workdir import surroundings

_DECIDING = ("devices", "versions")
"""What decides about the bits of a run, besides its config."""


class Interrupted(Exception):
    """The session's time is up; everything is saved, and the same command continues."""


def run(
    comparison: Comparison,
    experiment: Experiment,
    *,
    out: Path,
    workdir: Path,
    seeds: Sequence[int] = (),
    data: Path | None = None,
    seconds: float = 0.0,
    command: str = "",
    show: Callable[[str], None] = print,
) -> list[dict[str, Any]]:
    """Trains what a comparison still needs; writes the lines of its claims when all reported seeds are done.

    Args:
        comparison: what is compared; checked first.
        experiment: the experiment whose `main` trains the models.
        out: the folder of results, for the record and for `claims.jsonl`.
        workdir: for the runs' directories, from which interrupted ones continue.
        seeds: the reported seeds to run now; all by default.
        data: the folder of the comparison's data.
        seconds: ends this session in time, with everything saved; 0 for no limit.
        command: for the lines.
        show: is given the progress table after every run.

    Returns:
        The lines that were written; [] while runs are missing.

    Raises:
        ValueError: an incomplete or unfair comparison, seeds outside it, missing data, uncommitted code, a
            declaration edited after its first reported seed, or a run that is not what was declared. Nothing
            is trained then.
        Interrupted: the session's time is up.
    """
    comparison.check()
    if unknown := sorted(set(seeds) - set(comparison.seeds)):
        raise ValueError(f"seeds: got {unknown}, expected some of {comparison.seeds} as declared")
    _check_data(comparison, data)
    workdir = workdir / comparison.name
    workdir.mkdir(parents=True, exist_ok=True)
    with Held(workdir, wait=False):
        record = Record(out, comparison.name)
        claim_declaring.check(comparison, record, out)
        runner = _Runner(comparison, experiment, record, workdir, data, seconds, show)
        runner.train(list(search_pieces(comparison)))
        chosen = choose(comparison, record)
        claim_declaring.declare(comparison, record)
        wanted = list(reported_pieces(comparison, chosen))
        runner.train([piece for piece in wanted if not seeds or piece.seed in seeds])
        if not all(record.find(piece) for piece in wanted):
            return []
        lines = [make_line(comparison, claim, record, chosen, command) for claim in comparison.claims]
        publish(out, lines)
        draw(comparison, record, out)
        return lines


def _check_data(comparison: Comparison, data: Path | None) -> None:
    if (comparison.with_data is None) != (data is None):
        expected = "no folder" if comparison.with_data is None else "the folder of its data"
        if comparison.data_command:
            expected += f" (made by {comparison.data_command})"
        raise ValueError(f"data: got {data}, expected {expected} for {comparison.name}")


def _reading(comparison: Comparison, config: Any, data: Path | None) -> Any:
    """Returns a config that reads the comparison's data, if it needs any, and is valid."""
    if comparison.with_data is None or data is None:
        return config
    config = comparison.with_data(config, data)
    config.validate()
    return config


class _Runner:
    """Trains pieces one after another until the session's time is up."""

    def __init__(self, comparison, experiment, record, workdir, data, seconds, show):
        self.comparison, self.experiment, self.record = comparison, experiment, record
        self.workdir, self.data, self.show = workdir, data, show
        self.end = time.monotonic() + seconds if seconds else None

    def train(self, pieces: Sequence[Piece]) -> None:
        # What is wrong is refused before anything is trained.
        configs = [_reading(self.comparison, piece.config, self.data) for piece in pieces]
        for piece, config in zip(pieces, configs, strict=True):
            if self.record.find(piece):
                continue
            if self.end is not None:
                config = dataclasses.replace(config, session_seconds=self.end - time.monotonic())
                if config.session_seconds <= 0:
                    raise Interrupted(
                        f"{self.comparison.name}: the session's time is up; the same command continues"
                    )
            directory, began = self.workdir / piece.folder, time.monotonic()
            try:
                found = self.experiment.main(config, workdir=directory)
            except NonFiniteLoss as error:
                line = _line_of_divergence(piece, error.step)
                if piece.kind != SEARCH:
                    if self.comparison.diverged is None:
                        raise
                    line |= _of_diverged(self.comparison, piece, time.monotonic() - began)
                self.record.add(line)
                continue
            result = _first(found)
            if result.step < piece.steps:
                raise Interrupted(
                    f"{self.comparison.name}: the session's time is up; the same command continues"
                )
            self.record.add(_line_of_run(piece, self.comparison, Run(result, config, directory)))
            self.show(progress_table(self.comparison, self.record))


def _first(found: Any) -> FitResult:
    """Returns the result of an experiment that trains one model, or of the first of several."""
    return found if isinstance(found, FitResult) else next(iter(found.values()))


def _line_of_divergence(piece: Piece, step: int) -> dict[str, Any]:
    """Returns the line of a run that diverged; of a search run, it rules its settings out."""
    return {
        **piece.key,
        "measurements": {},
        "diverged": step,
        "date": today(),
        "config": claims.settled(piece.config),
    }


def _of_diverged(comparison: Comparison, piece: Piece, seconds: float) -> dict[str, Any]:
    """Returns what the line of a reported run that diverged has besides, as if it had ended."""
    assert comparison.diverged is not None
    return {
        "measurements": dict(comparison.diverged(piece.config)),
        "parameters": piece.model.parameters,
        "train_seconds": round(seconds, 2),
        "params_sha256": None,
        **surroundings(),
    }


def _line_of_run(piece: Piece, comparison: Comparison, run: Run) -> dict[str, Any]:
    parameters = sum(leaf.size for leaf in jax.tree.leaves(run.result.params))
    if parameters != piece.model.parameters:
        raise ValueError(
            f"{comparison.name}: {piece.model.name}: parameters: got {parameters:,} in the run, expected the "
            f"declared {piece.model.parameters:,}"
        )
    return {
        **piece.key,
        "measurements": dict(comparison.measure(run)),
        "parameters": parameters,
        "train_seconds": round(run.result.train_seconds, 2),
        **_origin(run.result),
        "config": claims.settled(piece.config),
    }


def _origin(result: FitResult) -> dict[str, Any]:
    """Returns what a run's parameters were and what made them."""
    names = ("params_sha256", *_DECIDING, "commit")
    return {"date": today(), **{name: result.summary[name] for name in names}}


def finished(comparison: Comparison, out: Path) -> list[Piece]:
    """Returns the reported runs that are done and can be repeated here.

    Bits depend on devices, of which the number of CPU cores is a part, and on versions: these are as here.
    """
    record, here, found = Record(out, comparison.name), surroundings(), []
    for piece in reported_pieces(comparison, choose(comparison, record)):
        line = record.find(piece)
        if line and line["params_sha256"] and all(line[name] == here[name] for name in _DECIDING):
            found.append(piece)
    return found


def again(
    comparison: Comparison,
    experiment: Experiment,
    piece: Piece,
    *,
    out: Path,
    workdir: Path,
    data: Path | None = None,
) -> bool:
    """Trains a reported run again from nothing; records and returns whether the parameters have equal bits.

    Raises:
        ValueError: missing data, or a folder that the comparison does not need.
    """
    _check_data(comparison, data)
    workdir = workdir / comparison.name
    workdir.mkdir(parents=True, exist_ok=True)
    with Held(workdir, wait=False), tempfile.TemporaryDirectory(dir=workdir) as folder:
        record = Record(out, comparison.name)
        before = record.find(piece)
        assert before is not None
        config = _reading(comparison, piece.config, data)
        origin = _origin(_first(experiment.main(config, workdir=Path(folder) / piece.folder)))
        same = origin["params_sha256"] == before["params_sha256"]
        record.add({**piece.key, "kind": AGAIN, "same": same, **origin})
    return same


def progress_table(comparison: Comparison, record: Record) -> str:
    """Returns how many runs of each model are done, how many are needed, and the mean of the measurement."""
    value = comparison.claims[0].value if comparison.claims else comparison.search_by
    chosen, rows = choose(comparison, record), []
    for model in comparison.models:
        cells = []
        for pieces in (search_pieces(comparison), reported_pieces(comparison, chosen)):
            of_model = [piece for piece in pieces if piece.model is model]
            done = [line["measurements"] for piece in of_model if (line := record.find(piece))]
            values = [found[value] for found in done if value in found]
            cells += [f"{len(done)}/{len(of_model)}", f"{statistics.fmean(values):.4g}" if values else "-"]
        rows.append((model.name, *cells))
    head = (comparison.name, "search", "mean", "reported", "mean")
    widths = [max(len(row[place]) for row in (head, *rows)) for place in range(len(head))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in (head, *rows)
    )


def step_times(
    comparison: Comparison,
    experiment: Experiment,
    *,
    steps: int,
    data: Path | None = None,
    blocks: int = 3,
) -> dict[str, float]:
    """Returns each model's seconds per step, the median over blocks that take turns.

    On a machine that does nothing else, these are the `step_seconds` of a declaration, from which
    `equal_time` derives numbers of steps. Compilation and evaluation do not count. `data` is the folder of
    the comparison's data.

    Raises:
        ValueError: missing data, or a folder that the comparison does not need.
    """
    _check_data(comparison, data)
    found: dict[str, list[float]] = {model.name: [] for model in comparison.models}
    for block in range(blocks):
        for model in comparison.models:
            config = _reading(comparison, model.configured(model.search[0], block, steps), data)
            config = config.hardly_evaluated()
            with tempfile.TemporaryDirectory() as directory:
                result = experiment.main(config, workdir=Path(directory) / "run")
            result = _first(result)
            found[model.name].append(result.train_seconds / result.step)
    return {name: statistics.median(seconds) for name, seconds in found.items()}
