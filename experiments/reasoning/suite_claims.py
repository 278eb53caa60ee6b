"""The claims of the suite: every model on every task that it fits, against a pre-LN Transformer.

All runs of a task take equal time, about a minute. The learning rate stays constant after its warm-up, so
that a run has its accuracy after every smaller number of steps: that after equal steps is a point on its
curve. What is expected was written down before the first reported seed (`EXPECTED`), and is scored whichever
way it falls. Triples of the 64 pairs of nodes of "paths" would take 0.3 s a step: too few steps in a minute.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from experiments import runtime
from experiments.reasoning.config import Config, get_config
from experiments.reasoning.tasks import TASKS
from experiments.runtime.claims import Claim, Comparison, Line, Model, Run, equal_time

BASELINE = "transformer"
SECONDS = 60
"""Of training, on one quiet CPU core."""
RATES = tuple({"lr": rate} for rate in (1e-3, 3e-3, 1e-2))


class Cell(NamedTuple):
    """A model on a task."""

    features: int  # D
    hidden: int
    parameters: int
    step_seconds: float  # on one quiet CPU core


CELLS: Mapping[str, Mapping[str, Cell]] = {
    "match3": {
        "simplicial": Cell(48, 159, 59_984, 0.0112),
        "simplicial_virtual": Cell(48, 34, 60_706, 0.00634),
        "tp_transformer": Cell(48, 180, 60_026, 0.00311),
        "folnet": Cell(48, 24, 60_050, 0.0164),
        "folnet_without_trans": Cell(48, 42, 60_038, 0.0126),
        "transformer": Cell(48, 205, 60_076, 0.00465),
        "looped_transformer": Cell(48, 509, 60_031, 0.00653),
    },
    "composition": {
        "simplicial": Cell(48, 154, 59_926, 0.0667),
        "simplicial_virtual": Cell(40, 35, 60_097, 0.00552),
        "tp_transformer": Cell(48, 175, 59_968, 0.00502),
        "folnet": Cell(48, 24, 60_050, 0.0057),
        "folnet_without_trans": Cell(48, 42, 60_038, 0.00357),
        "transformer": Cell(48, 200, 60_018, 0.00551),
        "looped_transformer": Cell(48, 499, 59_973, 0.0095),
        "edge_transformer": Cell(48, 156, 60_026, 0.00768),
    },
    "quotient": {
        "simplicial": Cell(48, 156, 59_546, 0.066),
        "simplicial_virtual": Cell(52, 33, 60_043, 0.00598),
        "tp_transformer": Cell(48, 177, 59_588, 0.0045),
        "folnet": Cell(48, 25, 59_860, 0.00541),
        "folnet_without_trans": Cell(48, 43, 59_848, 0.00387),
        "transformer": Cell(48, 202, 59_638, 0.00566),
        "looped_transformer": Cell(48, 503, 59_593, 0.00894),
        "edge_transformer": Cell(48, 157, 59_836, 0.00705),
    },
    "paths": {
        "simplicial_virtual": Cell(36, 35, 60_084, 0.00837),
        "tp_transformer": Cell(48, 159, 60_083, 0.00888),
        "folnet": Cell(48, 15, 59_915, 0.00496),
        "folnet_without_trans": Cell(48, 33, 59_903, 0.00341),
        "transformer": Cell(48, 183, 59_939, 0.0127),
        "looped_transformer": Cell(48, 466, 59_991, 0.0191),
        "edge_transformer": Cell(48, 147, 59_963, 0.0146),
    },
    "kinship": {
        "simplicial": Cell(48, 144, 60_018, 0.053),
        "simplicial_virtual": Cell(48, 33, 60_039, 0.0106),
        "tp_transformer": Cell(48, 165, 60_060, 0.00812),
        "folnet": Cell(48, 18, 59_910, 0.0139),
        "folnet_without_trans": Cell(48, 37, 60_092, 0.00841),
        "transformer": Cell(48, 189, 59_916, 0.0126),
        "looped_transformer": Cell(48, 478, 59_968, 0.0197),
        "edge_transformer": Cell(48, 145, 59_924, 0.0146),
    },
    "rcc8": {
        "simplicial": Cell(48, 149, 59_922, 0.0663),
        "simplicial_virtual": Cell(44, 34, 59_776, 0.00673),
        "tp_transformer": Cell(48, 170, 59_964, 0.00509),
        "folnet": Cell(48, 21, 59_954, 0.00618),
        "folnet_without_trans": Cell(48, 39, 59_942, 0.00484),
        "transformer": Cell(48, 195, 60_014, 0.00654),
        "looped_transformer": Cell(48, 489, 59_969, 0.0098),
        "edge_transformer": Cell(48, 151, 60_022, 0.00753),
    },
    "s5": {
        "simplicial": Cell(48, 108, 60_816, 0.0558),
        "tp_transformer": Cell(48, 129, 60_858, 0.00752),
        "folnet": Cell(44, 8, 60_900, 0.0424),
        "folnet_without_trans": Cell(44, 25, 60_978, 0.0344),
        "second_order": Cell(48, 22, 60_840, 0.00509),
        "transformer": Cell(48, 154, 60_908, 0.0123),
        "looped_transformer": Cell(48, 407, 60_863, 0.0183),
        "delta_product": Cell(48, 104, 60_944, 0.0216),
        "lstm": Cell(48, 85, 61_328, 0.00649),
    },
    "modular_arithmetic": {
        "simplicial": Cell(48, 160, 59_941, 0.133),
        "tp_transformer": Cell(48, 181, 59_983, 0.00556),
        "folnet": Cell(48, 9, 60_023, 0.0581),
        "folnet_without_trans": Cell(48, 27, 60_011, 0.0463),
        "second_order": Cell(48, 81, 59_459, 0.00673),
        "transformer": Cell(48, 206, 60_033, 0.00727),
        "looped_transformer": Cell(48, 511, 59_988, 0.0119),
        "delta_product": Cell(48, 156, 60_069, 0.0149),
        "lstm": Cell(48, 95, 60_005, 0.00496),
    },
}
"""By task and model. Parameters are equal within 2 %; times are of 2026-11-29, jax 0.12.0."""

BATCH: Mapping[str, int] = {
    "match3": 64,
    "composition": 16,
    "quotient": 16,
    "paths": 16,
    "kinship": 64,
    "rcc8": 16,
    "s5": 64,
    "modular_arithmetic": 16,
}
"""By task: smaller where problems are larger."""
EXPECTED: Mapping[str, frozenset[str]] = {
    "match3": frozenset({"simplicial"}),
    "composition": frozenset({"simplicial", "folnet", "edge_transformer"}),
    "quotient": frozenset({"simplicial", "folnet"}),
    "paths": frozenset({"folnet", "edge_transformer", "looped_transformer"}),
    "kinship": frozenset({"folnet", "edge_transformer"}),
    "rcc8": frozenset({"folnet", "edge_transformer"}),
    "s5": frozenset({"second_order"}),
    "modular_arithmetic": frozenset({"second_order", "lstm", "delta_product"}),
}
"""The models that are expected to answer more than the Transformer after equal steps; no others are."""


def steps_of(task: str, model: str) -> int:
    """Returns how many steps of a model take `SECONDS`."""
    return equal_time(1, SECONDS, CELLS[task][model].step_seconds, multiple_of=10)


def _evaluate_every(steps: int) -> int:
    """Returns after how many steps a run is evaluated: some forty times."""
    return 10 * max(1, round(steps / 400))


def measure(run: Run) -> dict[str, Any]:
    """Measures all tests at the end, and accuracy against steps on the problems of the validation.

    "after_steps_of" has that accuracy after as many steps as both the Transformer and the other model made.
    """
    config: Config = run.config
    task = TASKS[config.task]
    name = f"eval/right/{task.measure}"
    rows = runtime.metrics.read(run.workdir / "metrics.jsonl")
    curve = [[row["step"], row[name]] for row in rows if row.get(name) is not None]
    others = [other for other in CELLS[config.task] if other != BASELINE]
    pairs = others if config.model == BASELINE else [config.model]
    least = {other: min(steps_of(config.task, model) for model in (BASELINE, other)) for other in pairs}
    made, right = np.asarray(curve).T
    tests = run.result.results["tests"]
    return {
        "right": tests[f"right/{task.measure}"],
        "validated": run.result.metrics[name],
        **{f"after_steps_of_{other}": float(np.interp(steps, made, right)) for other, steps in least.items()},
        "tests": {test.removeprefix("right/"): value for test, value in tests.items()},
        "curve": curve,
    }


def _figures(runs: Mapping[str, Sequence[Line]]) -> dict[str, Any]:
    """Draws accuracies against the time of training."""
    task = next(iter(runs.values()))[0]["config"]["task"]
    curves: dict[str, Any] = {}
    for model, lines in runs.items():
        of_seeds = [line["measurements"]["curve"] for line in lines]
        seconds = np.asarray([step for step, _ in of_seeds[0]]) * CELLS[task][model].step_seconds
        band = runtime.intervals.mean_band([[right for _, right in curve] for curve in of_seeds])
        curves[model.replace("_", " ")] = (seconds, *band)
    figure = runtime.plots.curve_figure(
        curves,
        title=f"{task.replace('_', ' ')}: mean over seeds, 95 %",
        xlabel="seconds of training on one core",
        ylabel=f"accuracy on {TASKS[task].measure.replace('_', ' ')}",
        ylim=(0, 1),
    )
    return {f"reasoning/{task}": figure}


def _config(task: str, model: str) -> Config:
    cell = CELLS[task][model]
    every = _evaluate_every(steps := steps_of(task, model))
    return dataclasses.replace(
        get_config("suite"),
        task=task,
        model=model,
        features=cell.features,
        hidden=cell.hidden,
        batch_size=BATCH[task],
        schedule_steps=10**9,  # a learning rate that does not fall
        steps=steps,
        log_every=every,
        eval_every=every,
        checkpoint_every=20 * every,
    )


def _claims(task: str, model: str) -> tuple[Claim, Claim]:
    of, on = model.replace("_", " "), task.replace("_", " ")
    measured = f"accuracy on {TASKS[task].measure.replace('_', ' ')}, the mean over the answers"
    claim = f"on {on}, {of} answers more than a pre-LN Transformer of as many parameters after equal "
    shared: dict[str, Any] = {
        "measure": measured,
        "budget": "equal_time",
        "tests": ("unpaired",),
        "ours": model,
        "against": (BASELINE,),
        "paper": "yes" if model in EXPECTED[task] else "no",  # was it expected?
    }
    return (
        Claim(
            id=f"reasoning.{task}.{model}", claim=f"{claim}steps", value=f"after_steps_of_{model}", **shared
        ),
        Claim(id=f"reasoning.{task}.{model}.in_time", claim=f"{claim}time", value="right", **shared),
    )


def _comparison(task: str) -> Comparison:
    names = [BASELINE, *(name for name in CELLS[task] if name != BASELINE)]
    return Comparison(
        name=f"reasoning.{task}",
        claims=tuple(claim for name in names[1:] for claim in _claims(task, name)),
        models=tuple(
            Model(
                name,
                _config(task, name),
                CELLS[task][name].parameters,
                {"equal_time": steps_of(task, name)},
                search=RATES,
                step_seconds=CELLS[task][name].step_seconds,
            )
            for name in names
        ),
        measure=measure,
        seeds=(0, 1, 2, 3, 4),
        search_seeds=(100,),
        search_by="validated",
        level=1 - 0.05 / len(CELLS),  # for all tasks together; the comparison corrects for its own claims
        figures=_figures,
    )


CLAIMS = tuple(map(_comparison, CELLS))
