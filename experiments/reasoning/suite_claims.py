"""The claims of the suite: every model on every task that it fits, against a pre-LN Transformer.

All runs of a task take equal time, about a minute. The learning rate stays constant after its warm-up, so
that a run has its accuracy after every smaller number of steps: that after equal steps is a point on its
curve. What is expected was written down before the first reported seed (`EXPECTED`), and is scored whichever
way it falls. Triples of the 64 pairs of nodes of "paths" would take 0.3 s a step: too few steps in a minute.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from experiments import runtime
from experiments.reasoning.config import Config, get_config
from experiments.reasoning.tasks import TASKS
from experiments.runtime.claims import Claim, Comparison, Line, Model, Run, equal_time

BASELINE = "transformer"
SECONDS = 60
"""Of training, on one quiet CPU core."""
EVERY = 20
"""Steps between evaluations, and what the number of steps is a multiple of."""
RATES = tuple({"lr": rate} for rate in (1e-3, 3e-3, 1e-2))
SIZES: Mapping[str, Mapping[str, tuple[int, int, int]]] = {
    "match3": {
        "simplicial": (48, 159, 59_984),
        "simplicial_virtual": (48, 34, 60_706),
        "tp_transformer": (48, 180, 60_026),
        "folnet": (48, 24, 60_050),
        "folnet_without_trans": (48, 42, 60_038),
        "transformer": (48, 205, 60_076),
        "looped_transformer": (48, 509, 60_031),
    },
    "composition": {
        "simplicial": (48, 154, 59_926),
        "simplicial_virtual": (40, 35, 60_097),
        "tp_transformer": (48, 175, 59_968),
        "folnet": (48, 24, 60_050),
        "folnet_without_trans": (48, 42, 60_038),
        "transformer": (48, 200, 60_018),
        "looped_transformer": (48, 499, 59_973),
        "edge_transformer": (48, 156, 60_026),
    },
    "quotient": {
        "simplicial": (48, 156, 59_546),
        "simplicial_virtual": (52, 33, 60_043),
        "tp_transformer": (48, 177, 59_588),
        "folnet": (48, 25, 59_860),
        "folnet_without_trans": (48, 43, 59_848),
        "transformer": (48, 202, 59_638),
        "looped_transformer": (48, 503, 59_593),
        "edge_transformer": (48, 157, 59_836),
    },
    "paths": {
        "simplicial_virtual": (36, 35, 60_084),
        "tp_transformer": (48, 159, 60_083),
        "folnet": (48, 15, 59_915),
        "folnet_without_trans": (48, 33, 59_903),
        "transformer": (48, 183, 59_939),
        "looped_transformer": (48, 466, 59_991),
        "edge_transformer": (48, 147, 59_963),
    },
    "kinship": {
        "simplicial": (48, 144, 60_018),
        "simplicial_virtual": (48, 33, 60_039),
        "tp_transformer": (48, 165, 60_060),
        "folnet": (48, 18, 59_910),
        "folnet_without_trans": (48, 37, 60_092),
        "transformer": (48, 189, 59_916),
        "looped_transformer": (48, 478, 59_968),
        "edge_transformer": (48, 145, 59_924),
    },
    "rcc8": {
        "simplicial": (48, 149, 59_922),
        "simplicial_virtual": (44, 34, 59_776),
        "tp_transformer": (48, 170, 59_964),
        "folnet": (48, 21, 59_954),
        "folnet_without_trans": (48, 39, 59_942),
        "transformer": (48, 195, 60_014),
        "looped_transformer": (48, 489, 59_969),
        "edge_transformer": (48, 151, 60_022),
    },
    "s5": {
        "simplicial": (48, 108, 60_816),
        "tp_transformer": (48, 129, 60_858),
        "folnet": (44, 8, 60_900),
        "folnet_without_trans": (44, 25, 60_978),
        "second_order": (48, 22, 60_840),
        "transformer": (48, 154, 60_908),
        "looped_transformer": (48, 407, 60_863),
        "delta_product": (48, 104, 60_944),
        "lstm": (48, 85, 61_328),
    },
    "modular_arithmetic": {
        "simplicial": (48, 160, 59_941),
        "tp_transformer": (48, 181, 59_983),
        "folnet": (48, 9, 60_023),
        "folnet_without_trans": (48, 27, 60_011),
        "second_order": (48, 81, 59_459),
        "transformer": (48, 206, 60_033),
        "looped_transformer": (48, 511, 59_988),
        "delta_product": (48, 156, 60_069),
        "lstm": (48, 95, 60_005),
    },
}
"""By task and model: D, the hidden size, and the number of parameters, equal within 2 %."""

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
_STEP_SECONDS: Mapping[str, Mapping[str, float]] = {
    "match3": {
        "simplicial": 0.0112,
        "simplicial_virtual": 0.00634,
        "tp_transformer": 0.00311,
        "folnet": 0.0164,
        "folnet_without_trans": 0.0126,
        "transformer": 0.00465,
        "looped_transformer": 0.00653,
    },
    "composition": {
        "simplicial": 0.0667,
        "simplicial_virtual": 0.00552,
        "tp_transformer": 0.00502,
        "folnet": 0.0057,
        "folnet_without_trans": 0.00357,
        "transformer": 0.00551,
        "looped_transformer": 0.0095,
        "edge_transformer": 0.00768,
    },
    "quotient": {
        "simplicial": 0.066,
        "simplicial_virtual": 0.00598,
        "tp_transformer": 0.0045,
        "folnet": 0.00541,
        "folnet_without_trans": 0.00387,
        "transformer": 0.00566,
        "looped_transformer": 0.00894,
        "edge_transformer": 0.00705,
    },
    "paths": {
        "simplicial_virtual": 0.00837,
        "tp_transformer": 0.00888,
        "folnet": 0.00496,
        "folnet_without_trans": 0.00341,
        "transformer": 0.0127,
        "looped_transformer": 0.0191,
        "edge_transformer": 0.0146,
    },
    "kinship": {
        "simplicial": 0.053,
        "simplicial_virtual": 0.0106,
        "tp_transformer": 0.00812,
        "folnet": 0.0139,
        "folnet_without_trans": 0.00841,
        "transformer": 0.0126,
        "looped_transformer": 0.0197,
        "edge_transformer": 0.0146,
    },
    "rcc8": {
        "simplicial": 0.0663,
        "simplicial_virtual": 0.00673,
        "tp_transformer": 0.00509,
        "folnet": 0.00618,
        "folnet_without_trans": 0.00484,
        "transformer": 0.00654,
        "looped_transformer": 0.0098,
        "edge_transformer": 0.00753,
    },
    "s5": {
        "simplicial": 0.0558,
        "tp_transformer": 0.00752,
        "folnet": 0.0424,
        "folnet_without_trans": 0.0344,
        "second_order": 0.00509,
        "transformer": 0.0123,
        "looped_transformer": 0.0183,
        "delta_product": 0.0216,
        "lstm": 0.00649,
    },
    "modular_arithmetic": {
        "simplicial": 0.133,
        "tp_transformer": 0.00556,
        "folnet": 0.0581,
        "folnet_without_trans": 0.0463,
        "second_order": 0.00673,
        "transformer": 0.00727,
        "looped_transformer": 0.0119,
        "delta_product": 0.0149,
        "lstm": 0.00496,
    },
}
"""By task and model: seconds per step on one quiet CPU core, 2026-11-29, jax 0.12.0."""

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
    return equal_time(1, SECONDS, _STEP_SECONDS[task][model], multiple_of=EVERY)


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
    others = [other for other in SIZES[config.task] if other != BASELINE]
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
        seconds = np.asarray([step for step, _ in of_seeds[0]]) * _STEP_SECONDS[task][model]
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
    features, hidden, _ = SIZES[task][model]
    every = _evaluate_every(steps := steps_of(task, model))
    return dataclasses.replace(
        get_config("suite"),
        task=task,
        model=model,
        features=features,
        hidden=hidden,
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
    names = [BASELINE, *(name for name in SIZES[task] if name != BASELINE)]
    return Comparison(
        name=f"reasoning.{task}",
        claims=tuple(claim for name in names[1:] for claim in _claims(task, name)),
        models=tuple(
            Model(
                name,
                _config(task, name),
                SIZES[task][name][2],
                {"equal_time": steps_of(task, name)},
                search=RATES,
                step_seconds=_STEP_SECONDS[task][name],
            )
            for name in names
        ),
        measure=measure,
        seeds=(0, 1, 2, 3, 4),
        search_seeds=(100,),
        search_by="validated",
        level=1 - 0.05 / len(SIZES),  # for all tasks together; the comparison corrects for its own claims
        figures=_figures,
    )


CLAIMS = tuple(map(_comparison, SIZES))
