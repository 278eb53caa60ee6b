"""The claims about models on kinship problems."""

import dataclasses
from typing import Any

from experiments.kinship import figures, measures
from experiments.kinship.config import get_config
from experiments.runtime.claims import Claim, Comparison, Model, Run, equal_time

RATES = ({"lr": 1e-3}, {"lr": 2e-3}, {"lr": 4e-3})
STEPS = 5000
ALL_SECONDS, FEWER_SECONDS = 0.0282, 0.0226
"""Seconds per step on two quiet CPU cores, 2026-11-21, jax 0.12.0: the means of three runs."""


def measure(run: Run) -> dict[str, Any]:
    """Measures the mean accuracy over the lengths of the metric, each length's, and the curve."""
    line = measures.line(run.config, run.result, run.workdir)
    accuracies = {f"k{name}": share for name, share in line["accuracies"].items()}
    return {"mean": line["metric"]["value"], **accuracies, "line": line}


_CONFIG = dataclasses.replace(get_config("ablation"), max_seconds=0.0)
_FEWER = _CONFIG.for_model("j.at")
_LONGER = equal_time(STEPS, ALL_SECONDS, FEWER_SECONDS, multiple_of=200)

OPERATORS = Comparison(
    name="kinship.operators",
    claims=tuple(
        Claim(
            id=f"kinship.operators.{budget}",
            claim="trained on chains of 2 and 3 facts, FOLNet with all operators answers longer ones better "
            "than without mu, cjoin and prod",
            measure="mean accuracy over k = 4 to 10",
            value="mean",
            budget=budget,
            tests=("unpaired",),
        )
        for budget in ("equal_steps", "equal_time")
    ),
    models=(
        Model(
            "FOLNet jmc.atp",
            _CONFIG.for_model("jmc.atp"),
            109_914,
            {"equal_steps": STEPS, "equal_time": STEPS},
            search=RATES,
            step_seconds=ALL_SECONDS,
        ),
        Model(
            "FOLNet j.at",
            _FEWER,
            109_950,
            {"equal_steps": STEPS, "equal_time": _LONGER},
            search=RATES,
            step_seconds=FEWER_SECONDS,
        ),
    ),
    measure=measure,
    seeds=(0, 1, 2, 3, 4),
    search_seeds=(100,),
    search_by="mean",
    figures=lambda runs: {
        f"kinship/operators_{name}": figure
        for name, figure in figures.of_lines(
            {
                model.removeprefix("FOLNet "): [line["measurements"]["line"] for line in lines]
                for model, lines in runs.items()
            }
        ).items()
    },
)

CLAIMS = (OPERATORS,)
