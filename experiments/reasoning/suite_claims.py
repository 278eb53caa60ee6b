"""The claims of the suite: every model on every task that it fits, against a pre-LN Transformer.

All runs of a task take equal time, about a minute. The learning rate stays constant after its warm-up, so
that a run has its accuracy after every smaller number of steps: that after equal steps is read from its
curve, which is measured 21 times, on problems that neither choose the learning rate nor are the test. In the
line of such a claim, `steps` and `seconds` are those of the whole runs; its sentence has the compared number.

A model's learning rate is the best of three after its minute, on one search seed. The best rate of the
Transformer after a few steps is another than after its minute. It is therefore reported with each of the
three, and a model answers more if it does so than each of them. Seeds are compared in pairs: runs of a seed
see the same problems. A run that diverges counts as a constant answer.

What is expected was written down before the first reported seed (`EXPECTED`), of equal steps alone, and is
scored whichever way it falls. "Yes" is wrong if the claim does not hold. "No" is wrong if it does: that a
model answers more than the Transformer, where we saw no reason for it.

64 cells of a task and a model: 56 train 8 runs each, three to choose the learning rate and five that are
reported, and the 8 of the Transformer 15 each. That is 9.8 hours of one core. Evaluation takes at most 1.9
hours more (`planned_hours`), to which compilation comes once a cell. Tasks are in order of their cost, so
that whoever stops early has a smaller complete table.

The simplicial model is not run on "paths": triples of its 64 pairs of nodes would take 0.3 s a step, too few
steps in a minute.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from experiments import runtime
from experiments.reasoning import suite
from experiments.reasoning.config import Config, get_config
from experiments.reasoning.tasks import TASKS, TRAIN
from experiments.runtime.claims import Claim, Comparison, Line, Model, Run, equal_time

BASELINE = "transformer"
"""In the table of cells; its claims name it by its learning rate (`RATED`)."""
SECONDS = 62
"""Of training, on one quiet CPU core."""
RATES = tuple({"lr": rate} for rate in (1e-3, 3e-3, 1e-2))
RATED = tuple(f"{BASELINE}, rate {rate['lr']:g}" for rate in RATES)
SEEDS, SEARCH_SEEDS = (0, 1, 2, 3, 4), (100,)
EVALUATIONS = 21
"""Of a run, while it trains."""
FAMILY = 200
"""For how many tests in the whole suite levels are corrected: more than now, so that models may be added."""
COMPARED = tuple(
    10**power * digits // 10
    for power in range(2, 6)
    for digits in (10, 12, 15, 18, 22, 27, 33, 39, 47, 56, 68, 82)
)
"""Numbers of steps after which accuracies are read from the curve. They do not depend on which models are
compared, so that a model that is added later finds those of the Transformer in its record."""


UNREAD = "{:,} of its parameters are not read: the pooler's, and those of what the last layer finds besides"

EVERY_RATE = "it is reported with every learning rate of the search"


class Cell(NamedTuple):
    """A model on a task; `suite.matched` finds `hidden`."""

    features: int  # D
    hidden: int
    parameters: int
    step_seconds: float  # on one quiet CPU core
    unread: int = 0  # parameters on which the logits do not depend


CELLS: Mapping[str, Mapping[str, Cell]] = {
    "match3": {
        "simplicial": Cell(48, 159, 59_984, 0.0135),
        "simplicial_virtual": Cell(48, 34, 60_706, 0.00954),
        "tp_transformer": Cell(48, 180, 60_026, 0.00375),
        "folnet": Cell(56, 60, 88_378, 0.0231, unread=28_322),
        "folnet_without_trans": Cell(56, 60, 83_618, 0.0167, unread=23_590),
        "transformer": Cell(48, 205, 60_076, 0.00458),
        "looped_transformer": Cell(48, 509, 60_031, 0.0202),
    },
    "paths": {
        "simplicial_virtual": Cell(36, 35, 60_084, 0.0113),
        "tp_transformer": Cell(48, 159, 60_083, 0.0111),
        "folnet": Cell(56, 31, 83_703, 0.00684, unread=23_677),
        "folnet_without_trans": Cell(56, 73, 88_435, 0.00539, unread=28_423),
        "transformer": Cell(48, 183, 59_939, 0.0102),
        "looped_transformer": Cell(48, 466, 59_991, 0.0506),
        "edge_transformer": Cell(48, 418, 59_991, 0.0301),
    },
    "composition": {
        "simplicial": Cell(48, 154, 59_926, 0.0777),
        "simplicial_virtual": Cell(40, 35, 60_097, 0.00643),
        "tp_transformer": Cell(48, 175, 59_968, 0.00581),
        "folnet": Cell(56, 47, 85_440, 0.00692, unread=25_485),
        "folnet_without_trans": Cell(56, 90, 90_398, 0.00586, unread=30_344),
        "transformer": Cell(48, 200, 60_018, 0.00528),
        "looped_transformer": Cell(48, 499, 59_973, 0.0284),
        "edge_transformer": Cell(48, 435, 59_957, 0.0185),
    },
    "quotient": {
        "simplicial": Cell(48, 159, 59_936, 0.0835),
        "simplicial_virtual": Cell(52, 33, 59_835, 0.00836),
        "tp_transformer": Cell(48, 180, 59_978, 0.00601),
        "folnet": Cell(56, 52, 86_010, 0.0093, unread=26_050),
        "folnet_without_trans": Cell(60, 29, 86_580, 0.00565, unread=26_624),
        "transformer": Cell(48, 205, 60_028, 0.00606),
        "looped_transformer": Cell(48, 509, 59_983, 0.0287),
        "edge_transformer": Cell(48, 440, 59_962, 0.02),
    },
    "kinship": {
        "simplicial": Cell(48, 144, 60_018, 0.0649),
        "simplicial_virtual": Cell(48, 33, 60_039, 0.0138),
        "tp_transformer": Cell(48, 165, 60_060, 0.0107),
        "folnet": Cell(56, 37, 84_372, 0.0193, unread=24_355),
        "folnet_without_trans": Cell(56, 79, 89_104, 0.0121, unread=29_101),
        "transformer": Cell(48, 189, 59_916, 0.0115),
        "looped_transformer": Cell(48, 478, 59_968, 0.0499),
        "edge_transformer": Cell(48, 414, 59_952, 0.0286),
    },
    "rcc8": {
        "simplicial": Cell(48, 150, 59_971, 0.0938),
        "simplicial_virtual": Cell(44, 34, 59_643, 0.00857),
        "tp_transformer": Cell(48, 171, 60_013, 0.0068),
        "folnet": Cell(56, 43, 85_017, 0.00995, unread=25_033),
        "folnet_without_trans": Cell(56, 85, 89_749, 0.00575, unread=29_779),
        "transformer": Cell(48, 196, 60_063, 0.00678),
        "looped_transformer": Cell(48, 491, 60_018, 0.0278),
        "edge_transformer": Cell(48, 427, 60_002, 0.0174),
    },
    "s5": {
        "simplicial": Cell(48, 108, 60_816, 0.0727),
        "tp_transformer": Cell(48, 129, 60_858, 0.00954),
        "folnet": Cell(48, 34, 75_836, 0.0544, unread=15_828),
        "folnet_without_trans": Cell(48, 43, 74_078, 0.0418, unread=14_076),
        "second_order": Cell(48, 22, 60_840, 0.00616),
        "transformer": Cell(48, 154, 60_908, 0.01),
        "looped_transformer": Cell(48, 407, 60_863, 0.0474),
        "delta_product": Cell(48, 104, 60_944, 0.0225),
        "lstm": Cell(48, 85, 61_328, 0.00736),
    },
    "modular_arithmetic": {
        "simplicial": Cell(48, 160, 59_941, 0.155),
        "tp_transformer": Cell(48, 181, 59_983, 0.00591),
        "folnet": Cell(52, 51, 78_575, 0.0835, unread=18_525),
        "folnet_without_trans": Cell(52, 61, 76_567, 0.0654, unread=16_471),
        "second_order": Cell(48, 81, 59_459, 0.0075),
        "transformer": Cell(48, 206, 60_033, 0.00788),
        "looped_transformer": Cell(48, 511, 59_988, 0.0358),
        "delta_product": Cell(48, 156, 60_069, 0.0161),
        "lstm": Cell(48, 95, 60_005, 0.00553),
    },
}
"""By task and model. Parameters but those that are not read are equal within 2 %; times are of 2026-12-01,
jax 0.12.0: the median of 7 intervals of about a second.
"""

BATCH: Mapping[str, int] = {
    "match3": 64,
    "paths": 16,
    "composition": 16,
    "quotient": 16,
    "kinship": 64,
    "rcc8": 16,
    "s5": 64,
    "modular_arithmetic": 16,
}
"""By task: smaller where problems are larger."""
EXPECTED: Mapping[str, frozenset[str]] = {
    "match3": frozenset({"simplicial"}),
    "paths": frozenset({"folnet", "edge_transformer", "looped_transformer"}),
    "composition": frozenset({"simplicial", "folnet", "edge_transformer"}),
    "quotient": frozenset({"simplicial", "folnet"}),
    "kinship": frozenset({"folnet", "edge_transformer"}),
    "rcc8": frozenset({"folnet", "edge_transformer"}),
    "s5": frozenset({"second_order"}),
    "modular_arithmetic": frozenset({"second_order", "lstm", "delta_product"}),
}
"""The models that are expected to answer more than the Transformer after equal steps; no others are."""


def steps_of(task: str, model: str) -> int:
    """Returns how many steps of a model take `SECONDS`."""
    return equal_time(1, SECONDS, CELLS[task][model].step_seconds, multiple_of=EVALUATIONS)


def compared_steps(task: str, model: str) -> int:
    """Returns the number of steps after which a model is compared with the Transformer: both made them."""
    least = min(steps_of(task, model), steps_of(task, BASELINE))
    return max(steps for steps in COMPARED if steps <= least)


def planned_hours() -> tuple[float, float]:
    """Returns the hours of one core that training takes, and evaluation at most, by the times of steps.

    A forward pass takes a third of a step, and grows with the square of the number of elements, or with the
    cube where triples of elements are computed.
    """
    searched = len(RATES) * len(SEARCH_SEEDS) + len(SEEDS)
    training = evaluation = 0.0
    for task, cells in CELLS.items():
        for model in cells:
            runs = len(RATES) * len(SEEDS) if model == BASELINE else searched
            training += runs * SECONDS
            evaluation += runs * evaluation_seconds(task, model)
    return training / 3600, evaluation / 3600


def evaluation_seconds(task: str, model: str) -> float:
    """Returns how long a run is evaluated at most; see `planned_hours`."""
    of, problems = TASKS[task], {}
    triples = model == "simplicial" or (model.startswith("folnet") and of.kind == "sequence")
    for seed, tests, times in (
        (suite.CURVE, (of.measure,), EVALUATIONS),
        (suite.VALIDATION, (of.measure,), 1),
        (suite.TEST, of.tests, 1),
    ):
        for test in tests:
            count = times * suite.num_batches(of, test, seed) * suite.TEST_BATCH
            problems[test] = problems.get(test, 0) + count
    forward = CELLS[task][model].step_seconds / 3 / BATCH[task]
    trained = suite.num_elements(of, TRAIN)
    growth = {
        test: max(1, suite.num_elements(of, test) / trained) ** (3 if triples else 2) for test in of.tests
    }
    return sum(forward * growth[test] * count for test, count in problems.items())


def measure(run: Run) -> dict[str, Any]:
    """Measures all tests at the end, and accuracy against steps on problems of its own.

    "after_STEPS" has that accuracy after so many of the steps `COMPARED`, interpolated; before the first
    evaluation, from that of a constant answer.
    """
    config: Config = run.config
    task = TASKS[config.task]
    name = f"eval/right/{task.measure}"
    rows = runtime.metrics.read(run.workdir / "metrics.jsonl")
    evaluated = [[row["step"], row[name]] for row in rows if row.get(name) is not None]
    curve = [[0, 1 / task.classes], *evaluated]
    made, right = np.asarray(curve).T
    tests = run.result.results["tests"]
    after = {steps: float(np.interp(steps, made, right)) for steps in COMPARED if steps <= config.steps}
    return {
        "right": tests[f"right/{task.measure}"],
        "validated": run.result.results["validated"],
        **{f"after_{steps}": value for steps, value in after.items()},
        "tests": {test.removeprefix("right/"): value for test, value in tests.items()},
        "curve": curve,
    }


def _figures(runs: Mapping[str, Sequence[Line]]) -> dict[str, Any]:
    """Draws accuracies against the time of training, and at its end against the size of problems."""
    task = next(iter(runs.values()))[0]["config"]["task"]
    sizes: dict[int, str] = {}
    for test in TASKS[task].tests:  # of several tests of one size, the first is drawn as training is
        sizes.setdefault(suite.num_tokens(TASKS[task], test), test)
    in_time: dict[str, Any] = {}
    by_size: dict[str, Any] = {}
    for name, lines in runs.items():
        model, found = name.split(",")[0], [line["measurements"] for line in lines]
        seconds = np.asarray([step for step, _ in found[0]["curve"]]) * CELLS[task][model].step_seconds
        band = runtime.intervals.mean_band([[right for _, right in each["curve"]] for each in found])
        in_time[name.replace("_", " ")] = (seconds, *band)
        band = runtime.intervals.mean_band(
            [[each["tests"][sizes[size]] for size in sorted(sizes)] for each in found]
        )
        by_size[name.replace("_", " ")] = (sorted(sizes), *band)
    shared: dict[str, Any] = {"ylim": (0, 1), "beside": True}
    shared["title"] = f"{task.replace('_', ' ')}: mean over seeds, 95 %"
    return {
        f"reasoning/{task}": runtime.plots.curve_figure(
            in_time,
            xlabel="seconds of training on one core",
            ylabel=f"accuracy on {TASKS[task].measure.replace('_', ' ')}",
            **shared,
        ),
        f"reasoning/{task}_by_size": runtime.plots.curve_figure(
            by_size, xlabel="elements, symbols or nodes of a problem", ylabel="accuracy", **shared
        ),
    }


def _config(task: str, model: str) -> Config:
    cell, steps = CELLS[task][model], steps_of(task, model)
    every = steps // EVALUATIONS
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
        checkpoint_every=EVALUATIONS // 2 * every,
    )


def _claims(task: str, model: str) -> tuple[Claim, Claim]:
    of, on, steps = model.replace("_", " "), task.replace("_", " "), compared_steps(task, model)
    measured = f"accuracy on {TASKS[task].measure.replace('_', ' ')}, the mean over the answers"
    claim = f"on {on}, {of} answers more than a pre-LN Transformer of as many parameters after "
    shared: dict[str, Any] = {
        "budget": "equal_time",
        "tests": ("paired",),
        "ours": model,
        "against": RATED,
    }
    return (
        Claim(
            id=f"reasoning.{task}.{model}.equal_time",
            claim=f"{claim}equal time",
            measure=measured,
            value="right",
            **shared,
        ),
        Claim(
            id=f"reasoning.{task}.{model}.equal_steps",
            claim=f"{claim}equal steps ({steps:,} each)",
            measure=f"{measured}, on problems of its own, interpolated",
            value=f"after_{steps}",
            expected=model in EXPECTED[task],
            **shared,
        ),
    )


def constant(config: Config) -> dict[str, Any]:
    """Returns what `measure` finds of a constant answer."""
    task = TASKS[config.task]
    right = 1 / task.classes
    after = {f"after_{steps}": right for steps in COMPARED if steps <= config.steps}
    curve = [[step, right] for step in range(0, config.steps + 1, config.eval_every)]
    tests = dict.fromkeys(task.tests, right)
    return {"right": right, "validated": right, **after, "tests": tests, "curve": curve}


def _models(task: str) -> list[Model]:
    models = []
    for name, cell in CELLS[task].items():
        shared: dict[str, Any] = {"step_seconds": cell.step_seconds}
        values = _config(task, name), cell.parameters, {"equal_time": steps_of(task, name)}
        if name == BASELINE:
            for rated, rate in zip(RATED, RATES, strict=True):
                models.append(Model(rated, *values, search=(rate,), exception=EVERY_RATE, **shared))
        else:
            exception = UNREAD.format(cell.unread) if cell.unread else ""
            models.append(Model(name, *values, search=RATES, exception=exception, **shared))
    return models


def comparison(task: str) -> Comparison:
    """Returns what is declared for a task."""
    return Comparison(
        name=f"reasoning.{task}",
        claims=tuple(claim for name in CELLS[task] if name != BASELINE for claim in _claims(task, name)),
        models=tuple(_models(task)),
        measure=measure,
        seeds=SEEDS,
        search_seeds=SEARCH_SEEDS,
        search_by="validated",
        family=FAMILY,
        figures=_figures,
        diverged=constant,
    )


CLAIMS = tuple(map(comparison, CELLS))
