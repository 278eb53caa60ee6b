"""The claims about models of pairs: language models, FOLNet on graphs, and trunks of agents."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from experiments import runtime
from experiments.reasoning import bridges, graphs, published, suite_claims
from experiments.reasoning.config import get_config
from experiments.runtime.claims import Claim, Comparison, Line, Model, Run, equal_time

RATES = ({"lr": 1e-3}, {"lr": 2e-3}, {"lr": 4e-3})
STEPS = 1000


def measure(run: Run) -> dict[str, Any]:
    """Measures bits per byte of the held-out text, at the end and at each evaluation."""
    name = "eval/bits_per_byte"
    rows = runtime.metrics.read(run.workdir / "metrics.jsonl")
    curve = [[row["step"], row[name]] for row in rows if row.get(name) is not None]
    return {"bits_per_byte": run.result.metrics[name], "curve": curve}


_PAIRS = dataclasses.replace(get_config("quick"), schedule_steps=STEPS)
_DOT_PRODUCT = dataclasses.replace(get_config("dot_product"), schedule_steps=STEPS)

LANGUAGE = Comparison(
    name="simplicial.language",
    claims=(
        Claim(
            id="simplicial.language",
            claim="on little text, a language model whose every fourth layer attends to pairs predicts bytes "
            "better than one of dot-product attention with as many parameters after equal steps",
            measure="held-out bits per byte",
            value="bits_per_byte",
            higher_is_better=False,
            tests=("unpaired",),
            paper="no gain below 2 billion active parameters, small ones above (Roy et al. 2025)",
        ),
    ),
    models=(
        Model("pairs in every fourth layer", _PAIRS, 489_024, STEPS, search=RATES),
        Model("dot-product attention", _DOT_PRODUCT, 489_120, STEPS, search=RATES),
    ),
    measure=measure,
    seeds=(0, 1, 2),
    search_seeds=(100,),
    search_by="bits_per_byte",
    search_higher_is_better=False,
)


def measure_distances(run: Run) -> dict[str, Any]:
    """Measures the accuracy on graphs of each size, at the end, and the curve on the largest."""
    rows = runtime.metrics.read(run.workdir / "metrics.jsonl")
    largest = f"eval/right/{max(graphs.TESTED)}"
    curve = [[row["step"], row[largest]] for row in rows if row.get(largest) is not None]
    right = {f"right{nodes}": run.result.metrics[f"eval/right/{nodes}"] for nodes in graphs.TESTED}
    return {**right, "curve": curve}


_DISTANCES = get_config("distances")
_WIDTHS = {
    "jmc.atp": (64, 17_653),
    "jmc.ap": (76, 17_649),
    "jm.ap": (110, 17_643),
    "j.a": (149, 17_658),
    "jm.atp": (98, 17_647),
    "j.at": (137, 17_662),
}
"""By operators: the hidden size that makes up for missing parameters, and their number."""

GRAPH_DISTANCES = Comparison(
    name="graph.distances",
    claims=(
        Claim(
            id="graph.distances",
            claim="trained on graphs of 12 nodes, FOLNet with all operators finds more shortest paths in "
            "graphs of 48 than without trans, whichever other operators it has",
            measure="accuracy on 48 nodes, the mean over five answers",
            value="right48",
            tests=("unpaired",),
        ),
    ),
    models=tuple(
        Model(
            f"FOLNet {operators}",
            dataclasses.replace(_DISTANCES, operators=operators, hidden=hidden),
            parameters,
            _DISTANCES.steps,
            search=tuple({"lr": lr} for lr in (2e-3, 4e-3, 8e-3)),
            compared="t" not in operators or operators == "jmc.atp",
        )
        for operators, (hidden, parameters) in _WIDTHS.items()
    ),
    measure=measure_distances,
    seeds=(0, 1, 2, 3, 4),
    search_seeds=(100,),
    search_by="right48",
)


def measure_bridges(run: Run) -> dict[str, Any]:
    """Measures the accuracy on fresh boards at the last step, for each length, and the curves in boards."""
    names = {
        "right": "eval/right",
        **{f"right{length}": f"eval/right/{length}" for length in bridges.LENGTHS},
    }
    rows = [
        row
        for row in runtime.metrics.read(run.workdir / "metrics.jsonl")
        if row.get("eval/right") is not None
    ]
    curve = {"boards": [row["step"] * run.config.batch_size for row in rows]}
    curve |= {name: [row[key] for row in rows] for name, key in names.items()}
    return {**{name: run.result.metrics[key] for name, key in names.items()}, "curve": curve}


def _bridges_found(runs: Mapping[str, Sequence[Line]]) -> dict[str, Any]:
    """Draws accuracies against boards seen, on all boards and by length; and on all boards against time."""
    parts = {"right": "all boards", **{f"right{length}": f"L = {length}" for length in bridges.LENGTHS}}
    drawn = {f"which_box_{value}": (value, which, False) for value, which in parts.items()}
    drawn["which_box_time"] = ("right", "all boards", True)
    found: dict[str, Any] = {}
    for name, (value, which, in_time) in drawn.items():
        curves: dict[str, Any] = {}
        for model, lines in runs.items():
            of_seeds = [line["measurements"]["curve"] for line in lines]
            places = np.asarray(of_seeds[0]["boards"])
            places = places / _BRIDGES.batch_size * _STEP_SECONDS[model] / 60 if in_time else places / 1e6
            curves[model] = (places, *runtime.intervals.mean_band([curve[value] for curve in of_seeds]))
        found[f"reasoning/{name}"] = runtime.plots.curve_figure(
            curves,
            title=f"which box is the bridge? {which}; mean over seeds, 95 %",
            xlabel="minutes of training, by quiet step times" if in_time else "boards seen / 10⁶",
            ylabel="accuracy",
            ylim=(0, 1),
        )
    return found


_BRIDGES = get_config("bridges")
_STEP_SECONDS: Mapping[str, float] = {
    "simplicial": 0.117,
    "relational": 0.0831,
    "relational, wide": 0.281,
    "simplicial, trilinear logit": 0.123,
    "simplicial, B without parameters": 0.123,
    "simplicial, the paper's input": 0.117,
}
"""By model: seconds per step on two quiet CPU cores, 2026-11-29, jax 0.12.0."""


def _finder(
    name: str, parameters: int, *, compared: bool = True, exception: str = "", **fields: Any
) -> Model:
    seconds = _STEP_SECONDS[name]
    as_long = equal_time(_BRIDGES.steps, _STEP_SECONDS["simplicial"], seconds, multiple_of=_BRIDGES.log_every)
    return Model(
        name,
        dataclasses.replace(_BRIDGES, **fields),
        parameters,
        {"equal_steps": _BRIDGES.steps, "equal_time": as_long},
        search=tuple({"lr": lr} for lr in (1e-3, 2e-3, 4e-3)),
        compared=compared,
        step_seconds=seconds,
        exception=exception,
    )


WHICH_BOX = Comparison(
    name="boxworld.which_box",
    claims=tuple(
        Claim(
            id=f"boxworld.which_box.{budget}",
            claim="asked which box is the bridge, the simplicial agent's trunk answers better than the "
            "relational one, at the paper's width and with as many parameters",
            measure="accuracy on 4,096 fresh boards that have a bridge",
            value="right",
            budget=budget,
            tests=("unpaired",),
        )
        for budget in ("equal_steps", "equal_time")
    ),
    models=(
        _finder("simplicial", 154_437),
        _finder(
            "relational",
            28_165,
            virtual_entities=0,
            exception="the paper's agents differ in parameters; the wide relational trunk has as many",
        ),
        _finder("relational, wide", 155_461, virtual_entities=0, features=166),
        _finder("simplicial, trilinear logit", 154_437, pair_logit="trilinear", compared=False),
        _finder("simplicial, B without parameters", 43_845, bilinear=False, compared=False),
        _finder(
            "simplicial, the paper's input", 154_437, input_centre=0.0, input_scale=255.0, compared=False
        ),
    ),
    measure=measure_bridges,
    seeds=(0, 1, 2, 3, 4),
    search_seeds=(100,),
    search_by="right",
    search_steps=_BRIDGES.steps // 4,
    figures=_bridges_found,
)
"""Settings are searched on the reported boards, by another seed of the model, alike for all models."""

PUBLISHED_ACCURACY = 0.92
"""Of two layers of standard attention: Kozachinskiy et al. (2025), Table 1, the median over 8 seeds."""


def measure_published(run: Run) -> dict[str, Any]:
    """Measures the accuracy at the end, how far it is from the published one, and the curve."""
    right = run.result.metrics["eval/right"]
    rows = runtime.metrics.read(run.workdir / "metrics.jsonl")
    curve = [[row["step"], row["eval/right"]] for row in rows if row.get("eval/right") is not None]
    return {"right": right, "error": abs(right - PUBLISHED_ACCURACY), "curve": curve}


_PUBLISHED = get_config("published_composition")
_HELD_OUT_GRAPHS = f"{published.GRAPHS - published.TRAINED:,} held-out graphs"

# A first try, with vectors for rows and columns and a smaller feed-forward part, answered .973 with seed 0.
PUBLISHED_COMPOSITION = Comparison(
    name="reasoning.published.composition",
    claims=(
        Claim(
            id="reasoning.published.composition",
            claim="two layers of attention, trained as published, compose relations as well as published: "
            "half of the seeds are within 5 points",
            measure=f"distance of the accuracy on {_HELD_OUT_GRAPHS} from {PUBLISHED_ACCURACY}",
            value="error",
            higher_is_better=False,
            tests=("threshold",),
            target=0.05,
            share=0.5,
            paper=f"{PUBLISHED_ACCURACY}, the median over 8 seeds",
        ),
        Claim(
            id="reasoning.published.composition.accuracy",
            claim="two layers of attention, trained as published, compose relations",
            measure=f"accuracy on {_HELD_OUT_GRAPHS}",
            value="right",
            paper=f"{PUBLISHED_ACCURACY}, the median over 8 seeds",
        ),
    ),
    models=(Model("two layers of attention", _PUBLISHED, 3617, _PUBLISHED.steps),),
    measure=measure_published,
    seeds=(5, 6, 7, 8, 9),
)

CLAIMS = (LANGUAGE, GRAPH_DISTANCES, WHICH_BOX, *suite_claims.CLAIMS, PUBLISHED_COMPOSITION)
