"""The claims about binding to roles: the TP-Transformer, the Transformer, and gates in place of the binding.

`MODULES` compares the three models on modules that all of them learn in part. They read one set of questions,
whose test questions are those of `evaluation_set` and do not occur in training:

    python -m experiments.mathematics.data --out=DIR --train=30000 --test=500 --seed=2019 --modules=NAMES
    python -m experiments.claims --only=mathematics.tp_against_transformer --data=DIR

NAMES are those of `TRAINED` and `LONGER`. The models differ in what multiplies the retrieved values alone
(`baselines.gated` says why the gate is a sigmoid), and the Transformer, which has fewer matrices, in the
feed-forward width that makes up for their parameters. A seed draws the same batches in the same order for
all models, so differences are taken by seed.

`COMPOSED` asks the same where roles should matter most, on compositions that do not occur in training
(`composed`). Its search is by the trained compositions, since those held out are what is claimed about.
"""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from experiments.mathematics import evaluation_set
from experiments.mathematics.config import Architecture, Config, DataConfig, ModelConfig
from experiments.runtime.claims import Claim, Comparison, Model, Run, equal_time
from tp_transformer import mathematics

TRAINED = (
    "algebra__linear_1d",
    "arithmetic__add_sub_multiple",
    "calculus__differentiate",
    "comparison__kth_biggest",
    "comparison__pair",
)
LONGER = "arithmetic__add_sub_multiple_longer"
"""The module of extrapolation, more terms than in training."""

SEARCH = tuple(
    {"model.initialization": initialization, "lr": lr}
    for initialization in ("xavier", "uniform")
    for lr in (3e-4, 1e-3, 3e-3)
)
"""Both initializations of attention with each rate, for every model."""

STEPS, SEARCH_STEPS = 4000, 1000
SECONDS: Mapping[Architecture, float] = {
    "tp_transformer": 0.141,
    "transformer": 0.142,
    "gated_transformer": 0.146,
}
"""Seconds per step on one quiet CPU core, from `--step_times=200`, 2026-11-30, jax 0.12.0."""

SIZES: tuple[tuple[str, Architecture, int, int], ...] = (
    ("TP-Transformer", "tp_transformer", 448, 807_184),
    ("Transformer", "transformer", 546, 806_792),
    ("gated Transformer", "gated_transformer", 448, 807_184),
)
"""Names, architectures, feed-forward widths as `ModelConfig.matched` gives, and numbers of parameters."""


def base(name: Architecture, filter_features: int) -> Config:
    """Returns the config that the models share but for their architecture and feed-forward width."""
    return Config(
        data=DataConfig(
            modules=TRAINED,
            extrapolation=(LONGER,),
            train=30_000,
            test=evaluation_set.QUESTIONS,
            seed=evaluation_set.SEED,
            buckets=("64x14", "120x26", "162x32"),
        ),
        model=ModelConfig(
            name=name,
            features=112,
            filter_features=filter_features,
            num_heads=8,
            num_layers=2,
            initialization="xavier",
        ),
        lr=1e-3,
        warmup_steps=200,
        batch_size=32,
        steps=STEPS,
        log_every=100,
        checkpoint_every=500,
        eval_every=500,
        eval_batch_size=100,
        eval_questions=100,
    )


def measure(run: Run) -> dict[str, Any]:
    """Measures exact match by module, its mean over the trained ones, and that of the commonest answers."""
    found = {}
    for prefix, of_run in (("", run.result.results), ("commonest/", run.result.results["commonest_answer"])):
        for split in (mathematics.INTERPOLATE, mathematics.EXTRAPOLATE):
            for module, counts in of_run[split]["modules"].items():
                found[prefix + module.split("__")[1]] = counts["right"] / counts["total"]
        found[f"{prefix}mean"] = of_run[mathematics.INTERPOLATE]["average"]
    return found


def with_data(config: Config, folder: Path) -> Config:
    """Returns the config that reads a folder of questions, which are checked.

    Raises:
        ValueError: other test questions than `evaluation_set` has, or another number of training questions.
    """
    source = mathematics.open_source(folder)
    keys = [(split, name) for split, names in config.data.test_modules(source).items() for name in names]
    evaluation_set.check({key: evaluation_set.digest(source.questions(*key)) for key in keys}, folder)
    for module in config.data.modules:
        count = len(source.questions(config.data.split, module))
        if count != config.data.train:
            raise ValueError(f"{folder}: got {count} questions of {module}, expected {config.data.train}")
    return dataclasses.replace(config, data=dataclasses.replace(config.data, directory=str(folder)))


def budgets(name: Architecture, steps: int) -> dict[str, int]:
    """Returns a model's steps by budget."""
    in_time = equal_time(steps, SECONDS["tp_transformer"], SECONDS[name], multiple_of=100)
    return {"equal_steps": steps, "equal_time": in_time}


def models(search: tuple[Mapping[str, Any], ...]) -> tuple[Model, ...]:
    """Returns the three models."""
    return tuple(
        Model(
            shown,
            base(name, width),
            parameters,
            budgets(name, STEPS),
            search=search,
            step_seconds=SECONDS[name],
        )
        for shown, name, width, parameters in SIZES
    )


def _claim(value: str, questions: str, budget: str) -> Claim:
    return Claim(
        id=f"mathematics.tp_against_transformer.{value}.{budget}",
        claim=f"a TP-Transformer answers more questions of {questions} than a Transformer, and than one with "
        "sigmoid gates in place of the binding",
        measure="exact match on 500 new questions of each module",
        value=value,
        budget=budget,
        tests=("paired",),
        paper="80.67% against 77.42% on average over all 56 modules after 700,000 steps",
    )


_SHORT = tuple(module.split("__")[1] for module in TRAINED)
MODULES = Comparison(
    name="mathematics.tp_against_transformer",
    claims=(
        _claim("mean", "five modules", "equal_steps"),
        *(_claim(short, module, "equal_steps") for short, module in zip(_SHORT, TRAINED, strict=True)),
        _claim("add_sub_multiple_longer", f"{LONGER}, with more terms than in training,", "equal_steps"),
        _claim("mean", "five modules", "equal_time"),
    ),
    models=models(SEARCH),
    measure=measure,
    seeds=(0, 1, 2, 3, 4),
    search_seeds=(100,),
    search_by="mean",
    search_steps=SEARCH_STEPS,
    with_data=with_data,
)

COMPOSED_STEPS = 3000


def measure_composed(run: Run) -> dict[str, Any]:
    """Measures exact match on trained compositions, on those held out, and on each."""
    results = run.result.results
    each = {
        module: counts["right"] / counts["total"]
        for split in (mathematics.INTERPOLATE, mathematics.EXTRAPOLATE)
        for module, counts in results[split]["modules"].items()
    }
    trained, held_out = (
        results[split]["average"] for split in (mathematics.INTERPOLATE, mathematics.EXTRAPOLATE)
    )
    return {"trained": trained, "held_out": held_out, **each}


def composed_base(name: Architecture, filter_features: int) -> Config:
    """Returns `base` with composed questions, drawn when the run starts."""
    data = DataConfig(questions="composed", train=6000, test=100, seed=1, buckets=("64x8", "104x8"))
    return dataclasses.replace(
        base(name, filter_features), data=data, steps=COMPOSED_STEPS, eval_questions=20
    )


COMPOSED = Comparison(
    name="mathematics.composed",
    claims=(
        Claim(
            id="mathematics.composed",
            claim="trained on 20 of the 25 compositions of five functions, a TP-Transformer answers more "
            "questions of the other five than a Transformer, and than one with sigmoid gates in place of the "
            "binding",
            measure="exact match on 100 questions of each held-out composition",
            value="held_out",
            budget="equal_steps",
            tests=("paired",),
        ),
        Claim(
            id="mathematics.composed.trained",
            claim="the same models on new questions of the trained compositions",
            measure="exact match on 100 questions of each trained composition",
            value="trained",
            budget="equal_steps",
        ),
    ),
    models=tuple(
        Model(shown, composed_base(name, width), parameters, {"equal_steps": COMPOSED_STEPS}, search=SEARCH)
        for shown, name, width, parameters in SIZES
    ),
    measure=measure_composed,
    seeds=(0, 1, 2),
    search_seeds=(100,),
    search_by="trained",
    search_steps=SEARCH_STEPS,
)

CLAIMS = (MODULES, COMPOSED)
