"""The runner of comparisons: searches, reported seeds and the lines of claims, resumable at any moment.

Every run that ends becomes a line of the comparison's record, `claims/NAME.jsonl` in the folder of results,
which is small and meant to be committed: another machine or another day continues from it. Before the first
reported seed the declaration is recorded as well, with the commit that holds it; from then on an edited
declaration is refused, until it names new seeds.
"""

import dataclasses
import datetime
import fcntl
import inspect
import json
import math
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax

from experiments.runtime import claims
from experiments.runtime.claim_records import DECLARATION, REPORTED, SEARCH, Piece, Record
from experiments.runtime.claims import Claim, Comparison, Line, Run
from experiments.runtime.experiment import Experiment
from experiments.runtime.looping import FitResult, NonFiniteLoss
from experiments.runtime.optional import can_draw
from experiments.runtime.workdir import commit_of


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
    if (comparison.with_data is None) != (data is None):
        expected = "no folder" if comparison.with_data is None else "the folder of its data"
        raise ValueError(f"data: got {data}, expected {expected} for {comparison.name}")
    workdir = workdir / comparison.name
    workdir.mkdir(parents=True, exist_ok=True)
    with _held(workdir, wait=False):
        record = Record(out, comparison.name)
        _check_declaration(comparison, record, out)
        runner = _Runner(comparison, experiment, record, workdir, data, seconds, show)
        runner.train(list(_search_pieces(comparison)))
        chosen = choose(comparison, record)
        _declare(comparison, record)
        wanted = list(_reported_pieces(comparison, chosen))
        runner.train([piece for piece in wanted if not seeds or piece.seed in seeds])
        if not all(record.find(piece) for piece in wanted):
            return []
        lines = [make_line(comparison, claim, record, chosen, command) for claim in comparison.claims]
        _publish(out, lines)
        draw(comparison, record, out)
        return lines


def give_up(comparison: Comparison, *, out: Path, command: str = "") -> list[dict[str, Any]]:
    """Ends an attempt of which some reported seeds are done; writes and returns the lines of its claims.

    They have those seeds, are marked with `given_up`, and do not hold, so that an attempt that another
    declaration is to replace does not disappear.

    Raises:
        ValueError: no reported seed is done for all models, all are, or the declaration was edited.
    """
    comparison.check()
    record = Record(out, comparison.name)
    chosen = choose(comparison, record)
    if edited := record.declared and comparison.differences(record.declared["declaration"]):
        raise ValueError(
            f"{comparison.name}: got an edited declaration, expected the recorded one: " + "; ".join(edited)
        )

    def is_done(seed: int) -> bool:
        pieces = _reported_pieces(comparison, chosen)
        return all(record.find(piece) for piece in pieces if piece.seed == seed)

    done = [seed for seed in comparison.seeds if is_done(seed)]
    if not 0 < len(done) < len(comparison.seeds):
        raise ValueError(f"{comparison.name}: seeds: got {done} done, expected some of {comparison.seeds}")
    partial = dataclasses.replace(comparison, seeds=tuple(done))
    lines = [make_line(partial, claim, record, chosen, command, given_up=True) for claim in partial.claims]
    _publish(out, lines)
    return lines


class _Runner:
    """Trains pieces one after another until the session's time is up."""

    def __init__(self, comparison, experiment, record, workdir, data, seconds, show):
        self.comparison, self.experiment, self.record = comparison, experiment, record
        self.workdir, self.data, self.show = workdir, data, show
        self.end = time.monotonic() + seconds if seconds else None

    def train(self, pieces: Sequence[Piece]) -> None:
        configs = [
            self._config(piece) for piece in pieces
        ]  # refuses what is wrong before anything is trained
        for piece, config in zip(pieces, configs, strict=True):
            if self.record.find(piece):
                continue
            if self.end is not None:
                config = dataclasses.replace(config, session_seconds=self.end - time.monotonic())
                if config.session_seconds <= 0:
                    raise Interrupted(
                        f"{self.comparison.name}: the session's time is up; the same command continues"
                    )
            directory = self.workdir / piece.folder
            try:
                found = self.experiment.main(config, workdir=directory)
            except NonFiniteLoss as error:
                if piece.kind != SEARCH:
                    raise
                self.record.add(_line_of_divergence(piece, error.step))
                continue
            result = found if isinstance(found, FitResult) else next(iter(found.values()))
            if result.step < piece.steps:
                raise Interrupted(
                    f"{self.comparison.name}: the session's time is up; the same command continues"
                )
            self.record.add(_line_of_run(piece, self.comparison, Run(result, config, directory)))
            self.show(progress_table(self.comparison, self.record))

    def _config(self, piece: Piece) -> Any:
        config = piece.config
        if self.comparison.with_data is not None:
            config = self.comparison.with_data(config, self.data)
            config.validate()
        return config


def _line_of_divergence(piece: Piece, step: int) -> dict[str, Any]:
    """Returns the line of a search run that diverged, which rules its settings out."""
    date = datetime.datetime.now(datetime.UTC).date().isoformat()
    return {
        **piece.key,
        "measurements": {},
        "diverged": step,
        "date": date,
        "config": claims.settled(piece.config),
    }


def _line_of_run(piece: Piece, comparison: Comparison, run: Run) -> dict[str, Any]:
    parameters = sum(leaf.size for leaf in jax.tree.leaves(run.result.params))
    if parameters != piece.model.parameters:
        raise ValueError(
            f"{comparison.name}: {piece.model.name}: parameters: got {parameters:,} in the run, expected the "
            f"declared {piece.model.parameters:,}"
        )
    summary = run.result.summary
    return {
        **piece.key,
        "measurements": dict(comparison.measure(run)),
        "parameters": parameters,
        "train_seconds": round(run.result.train_seconds, 2),
        "params_sha256": summary["params_sha256"],
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "devices": summary["devices"],
        "versions": summary["versions"],
        "commit": summary["commit"],
        "config": claims.settled(piece.config),
    }


def _search_pieces(comparison: Comparison) -> Iterator[Piece]:
    for model in comparison.models:
        steps = comparison.search_steps or next(iter(model.budgets.values()))
        for settings in model.search if len(model.search) > 1 else ():
            for seed in comparison.search_seeds:
                yield Piece(SEARCH, model, settings, seed, steps)


def _reported_pieces(comparison: Comparison, chosen: Mapping[str, Mapping[str, Any]]) -> Iterator[Piece]:
    # Seed by seed, so that what is done when time is up can be compared.
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
    for piece in _search_pieces(comparison):
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


def _check_declaration(comparison: Comparison, record: Record, out: Path) -> None:
    if record.declared is None:
        return
    found = comparison.differences(record.declared["declaration"])
    again = record.reported_seeds() & set(comparison.seeds)
    if found and again:
        raise ValueError(
            f"{comparison.name}: the declaration was edited after its first reported seed; restore it, or "
            f"declare seeds other than {sorted(again)}: " + "; ".join(found)
        )
    reported = any(line["kind"] == REPORTED for line in record.lines[record.lines.index(record.declared) :])
    commit = record.declared["commit"]
    if found and reported and commit not in {line["fixed_beforehand"] for line in claims.read(out)}:
        raise ValueError(
            f"{comparison.name}: the attempt declared in commit {commit} has reported seeds and no lines; "
            "restore that declaration, and write them with --give_up"
        )


def _declare(comparison: Comparison, record: Record) -> None:
    """Records the declaration, unless it is recorded already."""
    if record.declared is not None and not comparison.differences(record.declared["declaration"]):
        return
    folder = Path(inspect.getfile(comparison.measure)).parent
    commit = commit_of(folder)
    if commit is not None and (commit.endswith("-dirty") or untracked(folder)):
        raise ValueError(
            f"{comparison.name}: got uncommitted changes or new Python files in the checkout of {folder}, "
            "expected none before the first reported seed"
        )
    date = datetime.datetime.now(datetime.UTC).date().isoformat()
    declaration = comparison.declaration()
    record.add({"kind": DECLARATION, "commit": commit, "date": date, "declaration": declaration})


def untracked(folder: Path) -> list[str]:
    """Returns the Python files of a folder's checkout that git neither tracks nor ignores; [] without git."""
    command = ["git", "-C", str(folder), "ls-files", "--others", "--exclude-standard", "--", ":/*.py"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    return done.stdout.splitlines()


def make_line(
    comparison: Comparison,
    claim: Claim,
    record: Record,
    chosen: Mapping[str, Mapping[str, Any]],
    command: str = "",
    *,
    given_up: bool = False,
) -> dict[str, Any]:
    """Returns the line of a claim, from the record of a comparison whose reported runs are all done.

    With `given_up`, the comparison has the seeds that are done of those that were declared.
    """
    entries, used = [], []
    for model in comparison.models_of(claim):
        steps = model.budgets[claim.budget]
        pieces = [
            Piece(REPORTED, model, chosen[model.name], seed, steps) for seed in comparison.seeds_of(model)
        ]
        lines = [line for piece in pieces if (line := record.find(piece))]
        used += lines
        entries.append(
            {
                "name": model.name,
                "per_seed": [line["measurements"][claim.value] for line in lines],
                "seeds": [line["seed"] for line in lines],
                "seconds": [line["train_seconds"] for line in lines],
                "parameters": model.parameters,
                "steps": model.updates(claim.budget),
                "settings": dict(chosen[model.name]),
            }
        )
        if len(entries) > 1:
            entries[-1] |= {"compared": model.compared, "exception": model.exception}
    ours, *baselines = entries
    last = max(used, key=lambda line: line["date"])
    line = {
        "id": claim.id,
        "claim": claim.claim,
        "measure": claim.measure,
        "higher_is_better": claim.higher_is_better,
        "paper": claim.paper,
        "target": claim.target,
        "tests": list(claim.tests),
        "level": comparison.corrected_level,
        "share": claim.share,
        "ours": ours,
        "baselines": baselines,
        "fixed_beforehand": record.declared["commit"] if record.declared else None,
        "search_seeds": list(comparison.search_seeds),
        "hardware": " and ".join(sorted({claims.hardware(line["devices"]) for line in used})),
        "versions": " and ".join(sorted({f"jax {line['versions']['jax']}" for line in used})),
        "date": last["date"],
        "command": command,
        "commit": last["commit"],
    }
    if given_up:
        line["given_up"] = True
    return {**line, "holds": claims.verdict(line)}


def draw(comparison: Comparison, record: Record, out: Path) -> list[Path]:
    """Draws the figures of a comparison whose reported runs are done; returns the files."""
    if comparison.figures is None or not can_draw():
        return []
    from experiments.runtime import plots  # Matplotlib takes long to import

    chosen, budget = choose(comparison, record), comparison.claims[0].budget
    runs = {
        model.name: [
            line
            for seed in comparison.seeds_of(model)
            if (line := record.find(Piece(REPORTED, model, chosen[model.name], seed, model.budgets[budget])))
        ]
        for model in comparison.models
    }
    return [plots.save(figure, out / f"{name}.png") for name, figure in comparison.figures(runs).items()]


def _publish(out: Path, lines: Sequence[Line]) -> None:
    """Adds lines to the file of claims; a line of an earlier declaration stays as ID.attempt1, and so on."""
    out.mkdir(parents=True, exist_ok=True)
    with _held(out, wait=True):
        found = {line["id"]: line for line in claims.read(out)}
        for line in lines:
            old = found.get(line["id"])
            if old is not None and old["fixed_beforehand"] != line["fixed_beforehand"]:
                number = sum(other.startswith(f"{line['id']}.attempt") for other in found) + 1
                name = f"{line['id']}.attempt{number}"
                found[name] = {**old, "id": name}
            found[line["id"]] = dict(line)
        claims.write(out, list(found.values()))


class _held:
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


def progress_table(comparison: Comparison, record: Record) -> str:
    """Returns how many runs of each model are done, how many are needed, and the mean of the measurement."""
    value = comparison.claims[0].value if comparison.claims else comparison.search_by
    chosen, rows = choose(comparison, record), []
    for model in comparison.models:
        cells = []
        for pieces in (_search_pieces(comparison), _reported_pieces(comparison, chosen)):
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
    comparison: Comparison, experiment: Experiment, *, steps: int, blocks: int = 3
) -> dict[str, float]:
    """Returns each model's seconds per step, the median over blocks that take turns.

    On a machine that does nothing else, these are the `step_seconds` of a declaration, from which
    `equal_time` derives numbers of steps. Compilation and evaluation do not count.
    """
    found: dict[str, list[float]] = {model.name: [] for model in comparison.models}
    for block in range(blocks):
        for model in comparison.models:
            config = model.configured(model.search[0], block, steps).hardly_evaluated()
            with tempfile.TemporaryDirectory() as directory:
                result = experiment.main(config, workdir=Path(directory) / "run")
            result = result if isinstance(result, FitResult) else next(iter(result.values()))
            found[model.name].append(result.train_seconds / result.step)
    return {name: statistics.median(seconds) for name, seconds in found.items()}
