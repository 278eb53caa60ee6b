"""The claims about pretraining FOLNet on the text that comes with Python."""

import dataclasses
from typing import Any

from experiments import runtime
from experiments.folnet_pretrain.config import get_config
from experiments.folnet_pretrain.parts import NONE
from experiments.runtime.claims import Claim, Comparison, Model, Run, equal_time

RATES = ({"lr": 5e-3}, {"lr": 1e-2}, {"lr": 2e-2})
STEPS = 500
FOLNET_SECONDS, TRANSFORMER_SECONDS = 0.0655, 0.0227
"""Seconds per step on two quiet CPU cores, 2026-11-21, jax 0.12.0: the means of three runs."""


def measure(run: Run) -> dict[str, Any]:
    """Measures the loss and the accuracy on masked words of held-out text, at the end and on the way."""
    rows = runtime.metrics.read(run.workdir / "metrics.jsonl")
    return {
        "loss": run.result.metrics["eval/mlm_loss"],
        "accuracy": run.result.metrics["eval/mlm_accuracy"],
        "unigram_entropy": run.result.results["unigram_entropy"],
        "curve": [
            [row["step"], row["eval/mlm_loss"]] for row in rows if row.get("eval/mlm_loss") is not None
        ],
    }


_FOLNET = dataclasses.replace(get_config("quick").resolved(), schedule_steps=STEPS)
# As `_FOLNET.for_baseline()`, which traces models and so initializes the backend: an import must not.
_TRANSFORMER = dataclasses.replace(
    _FOLNET,
    model=_FOLNET.model.as_transformer(intermediate_size=389),
    baseline=NONE,
    baseline_lr=0.0,
    lr=_FOLNET.baseline_lr,
)
_LONGER = equal_time(STEPS, FOLNET_SECONDS, TRANSFORMER_SECONDS, multiple_of=50)

QUICK = Comparison(
    name="folnet.pretraining",
    claims=tuple(
        Claim(
            id=f"folnet.pretraining.{name}.{budget}",
            claim=f"on little text, FOLNet {verb} a Transformer of as many parameters after {budget[6:]} "
            f"{'of training' if budget == 'equal_time' else ''}".strip(),
            measure=measured,
            value=value,
            budget=budget,
            higher_is_better=value == "accuracy",
            tests=("unpaired",),
        )
        for budget in ("equal_steps", "equal_time")
        for name, value, verb, measured in (
            ("loss", "loss", "has a lower loss than", "held-out loss of masked words, nats"),
            (
                "filled_in",
                "accuracy",
                "fills in more words than",
                "share of held-out masked words filled in rightly",
            ),
        )
    ),
    models=(
        Model(
            "FOLNet",
            dataclasses.replace(_FOLNET, baseline=NONE),
            393_666,
            {"equal_steps": STEPS, "equal_time": STEPS},
            search=RATES,
            step_seconds=FOLNET_SECONDS,
        ),
        Model(
            "Transformer",
            _TRANSFORMER,
            393_772,
            {"equal_steps": STEPS, "equal_time": _LONGER},
            search=RATES,
            step_seconds=TRANSFORMER_SECONDS,
        ),
    ),
    measure=measure,
    seeds=(0, 1, 2, 3, 4),
    search_seeds=(100, 101),
    search_by="loss",
    search_higher_is_better=False,
)

CLAIMS = (QUICK,)
