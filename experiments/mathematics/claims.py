"""The claims about the TP-Transformer and the Transformer on the Mathematics Dataset."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from experiments.mathematics.config import Config, get_config
from experiments.runtime.claims import Claim, Comparison, Model, Run
from tp_transformer.mathematics import INTERPOLATE

RATES = ({"lr": 1e-3}, {"lr": 3e-3}, {"lr": 1e-2})
MODULES = {"place_value": "numbers__place_value", "comparison_pair": "comparison__pair"}


def measure(run: Run) -> dict[str, Any]:
    """Measures exact match for each module, its mean, and that of always giving the commonest answer."""
    found = run.result.results[INTERPOLATE]
    always = run.result.results["commonest_answer"][INTERPOLATE]
    own = {short: _accuracy(found, name) for short, name in MODULES.items()}
    commonest = {f"commonest/{short}": _accuracy(always, name) for short, name in MODULES.items()}
    return {**own, **commonest, "mean": found["average"]}


def _accuracy(scores: Mapping[str, Any], module: str) -> float:
    counts = scores["modules"][module]
    return counts["right"] / counts["total"]


def _transformer() -> Config:
    config = get_config("quick")
    # As `ModelConfig.matched` gives, which initializes the backend: an import must not.
    model = dataclasses.replace(config.model, name="transformer", filter_features=184)
    return dataclasses.replace(config, model=model)


QUICK = Comparison(
    name="mathematics.quick",
    claims=tuple(
        Claim(
            id=f"mathematics.quick.{short}",
            claim=f"a small TP-Transformer answers more questions of {module} than a Transformer",
            measure="exact match on 500 new questions",
            value=short,
            tests=("unpaired",),
        )
        for short, module in MODULES.items()
    ),
    models=(
        Model("TP-Transformer", get_config("quick"), 201_664, 1500, search=RATES),
        Model("Transformer", _transformer(), 201_440, 1500, search=RATES),
    ),
    measure=measure,
    seeds=(0, 1, 2, 3, 4),
    search_seeds=(100,),
    search_by="mean",
)

CLAIMS = (QUICK,)
