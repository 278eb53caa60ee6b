"""The claims about models of pairs: language models that attend to them, and FOLNet on graphs."""

import dataclasses
from typing import Any

from experiments import runtime
from experiments.reasoning import graphs
from experiments.reasoning.config import get_config
from experiments.runtime.claims import Claim, Comparison, Model, Run

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

CLAIMS = (LANGUAGE, GRAPH_DISTANCES)
