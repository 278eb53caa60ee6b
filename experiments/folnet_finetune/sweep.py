"""Runs several settings and seeds and reports their medians and the best setting."""

import itertools
import json
import shutil
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from experiments import runtime
from experiments.folnet_finetune.config import KEEP_ALL, Config
from experiments.folnet_finetune.grid import Setting
from experiments.folnet_finetune.measures import BEST, MAIN
from experiments.runtime.config import SESSION_OVER
from experiments.runtime.workdir import config_difference, write_json
from folnet.tasks import median_over_seeds
from logic_zoo.writing import write_whole

DIVERGED = "diverged.json"


class Run(NamedTuple):
    """A finished run of a sweep."""

    setting: Setting
    seed: int
    directory: str
    """Path relative to the sweep's workdir."""
    results: dict[str, Any] | None
    """The results in its summary; None if the loss became non-finite."""


class Report(NamedTuple):
    """The finished runs of a sweep and their table."""

    runs: list[Run]
    table: list[dict[str, Any]]
    """A row per setting; see `tabulate`."""


def run_all(
    config: Config, examples: int, workdir: Path, run: Callable[[Config, Path], dict[str, Any]]
) -> Report:
    """Executes all unfinished runs and writes `sweep.md` and `sweep.json`.

    Args:
        config: a config with several seeds or a sweep.
        examples: number of examples in the training split.
        workdir: directory of the sweep, with a folder per setting and in it one per seed.
        run: trains (or continues) the run of a config in a directory and returns its summary.

    Raises:
        runtime.WorkdirError: a directory belongs to a run with another config.
    """
    began, runs = time.monotonic(), []
    for setting, seed in itertools.product(config.settings(), range(config.seed, config.seed + config.seeds)):
        name = f"{setting}/seed{seed}"
        one, directory = config.for_run(setting, seed).resolved(examples), workdir / name
        known = _is_of(one, directory)  # if not, `run` raises an error
        summary = _read(directory / "summary.json") if known else None
        results = None
        if summary is not None and _is_over(one, summary):
            results = summary["results"]
        if results is None and not (known and (directory / DIVERGED).exists()):
            one = one.in_session(began)  # the limit applies to all runs together
            if one.session_seconds == SESSION_OVER:
                break
            try:
                summary = run(one, directory)
            except runtime.NonFiniteLoss as error:
                if runtime.is_first():
                    write_json(directory / DIVERGED, {"step": error.step, "what": str(error)})
            else:
                if not _is_over(one, summary):  # the session's end
                    break
                results = summary["results"]
        runs.append(Run(setting, seed, name, results))
        _report(config, runs, workdir)
        if config.keep != KEEP_ALL and runtime.is_first():
            _clear(runs, config.seeds, workdir)
    return _report(config, runs, workdir)


def _is_over(config: Config, summary: Mapping[str, Any]) -> bool:
    return config.is_over(summary["step"], summary["train_seconds"]) or summary.get("stopped", False)


def _clear(runs: list[Run], seeds: int, workdir: Path) -> None:
    """Removes checkpoints, and the models of settings that are not the best.

    Only settings with all seeds are compared, since the median over fewer may still change.
    """
    whole = [run for run in runs if sum(other.setting == run.setting for other in runs) == seeds]
    chosen = _chosen(tabulate(whole))
    for run in runs:
        shutil.rmtree(workdir / run.directory / "checkpoints", ignore_errors=True)
        if chosen is not None and run in whole and run.setting != Setting(**chosen):
            shutil.rmtree(workdir / run.directory / BEST, ignore_errors=True)


def _is_of(config: Config, directory: Path) -> bool:
    before = _read(directory / "config.json")
    return before is not None and not config_difference(before, config)


def _read(path: Path) -> dict[str, Any] | None:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def tabulate(runs: Iterable[Run]) -> list[dict[str, Any]]:
    """Returns a row per setting, ordered by the median of the best checkpoints' main metric, highest first.

    A row has the setting's fields, `seeds`, `best` and `last` (medians of all metrics on the development
    splits at the best and the last checkpoints), `least` and `greatest` (the range of the best checkpoints'
    main metric) and `test` (medians of the best checkpoints' metrics where labels are published). A setting
    with diverged runs has their number, `diverged`, instead. It comes last, as do settings without a
    development split.
    """
    rows = []
    for setting in dict.fromkeys(run.setting for run in runs):
        of_setting = [run for run in runs if run.setting == setting]
        done = [run.results for run in of_setting if run.results is not None]
        row: dict[str, Any] = {**setting._asdict(), "seeds": [run.seed for run in of_setting]}
        if diverged := len(of_setting) - len(done):
            row["diverged"] = diverged
        else:
            for part in ("best", "last", "test"):
                names = [name for name in done[0][part] if name != "step"]
                row[part] = {name: median_over_seeds([one[part][name] for one in done]) for name in names}
            values = [one["best"][MAIN] for one in done if MAIN in one["best"]]
            row |= {"least": min(values), "greatest": max(values)} if values else {}
        rows.append(row)
    return sorted(rows, key=lambda row: -row.get("best", {}).get(MAIN, -np.inf))


def _report(config: Config, runs: list[Run], workdir: Path) -> Report:
    table = tabulate(runs)
    if not runtime.is_first():
        return Report(runs, table)
    workdir.mkdir(parents=True, exist_ok=True)
    planned = len(config.settings()) * config.seeds
    described = {
        "task": config.task,
        "checkpoint": config.checkpoint,
        "sweep": config.sweep,
        "runs": {"finished": len(runs), "planned": planned},
        "chosen": _chosen(table),
        "table": table,
    }
    write_json(workdir / "sweep.json", described)
    write_whole(workdir / "sweep.md", markdown(config, table, len(runs), planned))
    return Report(runs, table)


def _chosen(table: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Returns the setting with the highest median, or None without a development split."""
    if not table or MAIN not in table[0].get("best", {}):
        return None
    return {name: table[0][name] for name in Setting._fields}


def markdown(config: Config, table: list[dict[str, Any]], finished: int, planned: int) -> str:
    """Returns the table as Markdown, with medians in percent."""
    whole = next((row for row in table if "best" in row), {"best": {}, "test": {}})
    shown, tested = [name for name in whole["best"] if "threshold" not in name], list(whole["test"])
    head = ["lr", "batch", "epochs", "warmup", "seeds", *shown]
    head += [f"{MAIN}, range", f"{MAIN}, last checkpoint", *(f"test {name}" for name in tested)]
    lines = [
        f"# {config.task}: {finished} of {planned} runs",
        "",
        f"From {config.checkpoint or 'scratch'}. Medians over seeds in percent, on the development split at "
        "each run's best checkpoint. As in the paper, the checkpoint, the setting and (for SQuAD) the "
        "threshold are selected on the split that is reported, so scores on other data are lower.",
        "",
        "| " + " | ".join(head) + " |",
        "|" + "---|" * len(head),
    ]
    for row in table:
        cells = [f"{row['lr']:g}", str(row["batch_size"]), str(row["epochs"]), f"{row['warmup']:g}"]
        cells.append(str(len(row["seeds"])))
        if "diverged" in row:
            cells += [f"{row['diverged']} diverged"] + ["" for _ in head[len(cells) + 1 :]]
        else:
            cells += [_percent(row["best"].get(name)) for name in shown]
            cells.append(f"{_percent(row['least'])} to {_percent(row['greatest'])}" if "least" in row else "")
            cells.append(_percent(row["last"].get(MAIN)))
            cells += [_percent(row["test"].get(name)) for name in tested]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _percent(value: float | None) -> str:
    return "" if value is None else f"{100 * value:.1f}"
