"""The claims about models that attend to pairs."""

import dataclasses
from typing import Any

from experiments import runtime
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

CLAIMS = (LANGUAGE,)
