"""The claims about binding to roles: the TP-Transformer, the Transformer, and gates in place of the binding.

`MODULES` compares the three models on five modules and an extrapolation of one. They read one set of
questions, whose test questions are those of `evaluation_set` and do not occur in training:

    python -m experiments.mathematics.data --out=DIR --train=30000 --test=500 --seed=2019 --modules=NAMES
    python -m experiments.claims --only=mathematics.tp_against_transformer --data=DIR

NAMES are those of `TRAINED` and `LONGER`, with commas between; an error about another folder has the whole
command. Settings are searched by 500 training questions per module that are held back from training in all
runs, not by the test questions that are reported. Models of this size answer hardly any question of some
modules in the time that they have (in a trial of 4,000 steps, one or two of five were learned in part), so
the cross-entropy of right answers is compared, too. The models differ in what multiplies the retrieved
values alone (`baselines.gated` says why the gate is a sigmoid), and the Transformer, which has fewer
matrices, in the feed-forward width that makes up for their parameters. A seed draws the same batches in the
same order for all models, so differences are taken by seed. Steps are equal, and so is the time, nearly:
.141 s per step of the TP-Transformer, .142 s of the Transformer and .146 s of the gated one, on one quiet CPU
core (2026-11-30, jax 0.12.0).

`COMPOSED` asks the same where roles should matter most, on compositions that do not occur in training
(`composed`). Its search is by held-back questions of the trained compositions.
"""

import dataclasses
import json
import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from experiments.mathematics import composed, evaluation_set
from experiments.mathematics.config import COMPOSED as COMPOSED_QUESTIONS
from experiments.mathematics.config import Architecture, Config, DataConfig, ModelConfig
from experiments.mathematics.measures import VALIDATION
from experiments.runtime.claims import Claim, Comparison, Model, Run
from tp_transformer import mathematics
from tp_transformer.mathematics.generation import MANIFEST

STEPS, SEARCH_STEPS = 7000, 1200
TRAINED = (
    "algebra__linear_1d",
    "arithmetic__add_or_sub",
    "calculus__differentiate",
    "comparison__kth_biggest",
    "comparison__pair",
)
LONGER = "comparison__kth_biggest_more"
"""The module of extrapolation, more numbers than in training."""
QUESTIONS, HELD_BACK = 30_000, 500
"""Training questions per module, and how many of them are held back for the search."""

SEARCH = tuple(
    {"model.initialization": initialization, "lr": lr}
    for initialization in ("xavier", "uniform")
    for lr in (3e-4, 1e-3, 3e-3)
)
"""Both initializations of attention with each rate, for every model."""

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
            train=QUESTIONS,
            test=evaluation_set.QUESTIONS,
            seed=evaluation_set.SEED,
            buckets=("64x14", "120x26", "162x32"),
            validation=HELD_BACK,
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
    """Measures exact match and bits by module, their means over the trained ones, and commonest answers.

    "validation" and "validation_bits" are the means over held-back questions of the trained modules.
    """
    results = run.result.results
    found = {"validation": results[VALIDATION]["average"], "validation_bits": mean_bits(results[VALIDATION])}
    for prefix, of_run in (("", results), ("commonest/", results["commonest_answer"])):
        for split in (mathematics.INTERPOLATE, mathematics.EXTRAPOLATE):
            for module, counts in of_run[split]["modules"].items():
                found[prefix + short(module)] = counts["right"] / counts["total"]
        found[f"{prefix}mean"] = of_run[mathematics.INTERPOLATE]["average"]
    for split in (mathematics.INTERPOLATE, mathematics.EXTRAPOLATE):
        found |= {f"{short(name)}_bits": of["bits"] for name, of in results[split]["modules"].items()}
    return {**found, "mean_bits": mean_bits(results[mathematics.INTERPOLATE])}


def short(module: str) -> str:
    """Returns a module's name without its part of mathematics, which tells these modules apart."""
    return module.split("__")[1]


def mean_bits(scores: Mapping[str, Any]) -> float:
    """Returns the mean over the modules of a split of the bits per symbol of right answers."""
    return statistics.fmean(of["bits"] for of in scores["modules"].values())


def command(config: Config) -> str:
    """Returns the command that generates a config's questions."""
    data = config.data
    names = ",".join((*data.modules, *data.extrapolation))
    return (
        f"python -m experiments.mathematics.data --out=DIR --train={data.train} --test={data.test} "
        f"--seed={data.seed} --modules={names}"
    )


def with_data(config: Config, folder: Path) -> Config:
    """Returns the config that reads a folder of questions, which are checked.

    Raises:
        ValueError: the folder was not generated with the config's modules, seed and numbers of questions, or
            has other test questions than `evaluation_set`, or not all training questions. Names the command.
    """
    data = config.data
    wanted = mathematics.Generator(data.train, data.test, data.modules, data.extrapolation, data.seed)
    expected = json.loads(json.dumps(dataclasses.asdict(wanted)))
    path = folder / MANIFEST
    found = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    if different := [name for name, value in expected.items() if found.get(name) != value]:
        shown = ", ".join(f"{name} {found.get(name)!r}" for name in different)
        raise ValueError(f"{path}: got {shown}, expected a folder that this has made: {command(config)}")
    source = mathematics.open_source(folder)
    keys = [(split, name) for split, names in data.test_modules(source).items() for name in names]
    evaluation_set.check({key: evaluation_set.digest(source.questions(*key)) for key in keys}, folder)
    for module in data.modules:
        if (count := len(source.questions(data.split, module))) != data.train:
            raise ValueError(f"{folder}: got {count} questions of {module}, expected {data.train}")
    return dataclasses.replace(config, data=dataclasses.replace(data, directory=str(folder)))


def models(configs: Mapping[Architecture, Config], steps: int) -> tuple[Model, ...]:
    """Returns the three models with their configs by architecture."""
    return tuple(
        Model(shown, configs[name], parameters, steps, search=SEARCH) for shown, name, _, parameters in SIZES
    )


PAPER = "80.67% against 77.42% on average over all 56 modules after 700,000 steps"


def _against(shown: str, name: str, *, in_bits: bool) -> Claim:
    """Returns the claim about the mean over modules, and one baseline."""
    does = "is less surprised by right answers to" if in_bits else "answers more"
    return Claim(
        id=f"mathematics.tp_against_transformer.{'bits' if in_bits else 'mean'}.{name}",
        claim=f"a TP-Transformer {does} questions of {len(TRAINED)} modules than a {shown}",
        measure=BITS if in_bits else EXACT,
        value="mean_bits" if in_bits else "mean",
        higher_is_better=not in_bits,
        tests=("paired",),
        paper=None if in_bits else PAPER,
        against=(shown,),
    )


def _of_module(module: str, *, in_bits: bool) -> Claim:
    """Returns the claim that only reports a module, with the differences by seed."""
    return Claim(
        id=f"mathematics.tp_against_transformer.{short(module)}{'.bits' if in_bits else ''}",
        claim=f"the three models on {module}" + ", with more numbers than in training" * (module == LONGER),
        measure=BITS if in_bits else EXACT,
        value=f"{short(module)}_bits" if in_bits else short(module),
        higher_is_better=not in_bits,
    )


EXACT = "exact match on 500 new questions of each module"
BITS = "cross-entropy of the right answers to 500 new questions of each module, in bits per symbol"


MODULES = Comparison(
    name="mathematics.tp_against_transformer",
    claims=(
        *(
            _against(shown, name, in_bits=in_bits)
            for in_bits in (False, True)
            for shown, name, _, _ in SIZES[1:]
        ),
        *(_of_module(module, in_bits=in_bits) for in_bits in (False, True) for module in (*TRAINED, LONGER)),
    ),
    models=models({name: base(name, width) for _, name, width, _ in SIZES}, STEPS),
    measure=measure,
    seeds=(0, 1, 2, 3, 4),
    search_seeds=(100,),
    search_by="validation_bits",
    search_higher_is_better=False,
    search_steps=SEARCH_STEPS,
    with_data=with_data,
    data_command=command(base("tp_transformer", 448)),
)

COMPOSED_STEPS = 3000


def measure_composed(run: Run) -> dict[str, Any]:
    """Measures exact match and bits on trained compositions, on those held out, and exact match on each.

    "validation_bits" is the mean over held-back questions of the trained compositions, "guessed" how many of
    the held-out ones are right without the inner question.
    """
    results = run.result.results
    each = {
        module: counts["right"] / counts["total"]
        for split in (mathematics.INTERPOLATE, mathematics.EXTRAPOLATE)
        for module, counts in results[split]["modules"].items()
    }
    trained, held_out = (
        results[split]["average"] for split in (mathematics.INTERPOLATE, mathematics.EXTRAPOLATE)
    )
    in_bits = {
        "validation_bits": mean_bits(results[VALIDATION]),
        "trained_bits": mean_bits(results[mathematics.INTERPOLATE]),
        "held_out_bits": mean_bits(results[mathematics.EXTRAPOLATE]),
    }
    source = run.config.data.open()
    guessed = statistics.fmean(
        composed.guess(*pair, question) == answer
        for pair in composed.HELD_OUT
        for question, answer in source.questions(mathematics.EXTRAPOLATE, composed.name_of(*pair))
    )
    return {**in_bits, "trained": trained, "held_out": held_out, "guessed": guessed, **each}


def composed_base(name: Architecture, filter_features: int) -> Config:
    """Returns `base` with composed questions, drawn when the run starts."""
    sizes = {"train": 6000, "test": 100, "validation": 50}
    data = DataConfig(questions=COMPOSED_QUESTIONS, seed=1, buckets=("64x8", "104x8"), **sizes)
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
            tests=("paired",),
        ),
        Claim(
            id="mathematics.composed.bits",
            claim="and is less surprised by the right answers to these than both",
            measure="cross-entropy of right answers, in bits per symbol",
            value="held_out_bits",
            higher_is_better=False,
            tests=("paired",),
        ),
        Claim(
            id="mathematics.composed.trained",
            claim="the same models on new questions of the trained compositions",
            measure="exact match on 100 questions of each trained composition",
            value="trained",
        ),
        Claim(
            id="mathematics.composed.guessed",
            claim="what is right of the held-out compositions without reading their inner question",
            measure="exact match of the likeliest answer given the outer question",
            value="guessed",
        ),
    ),
    models=models({name: composed_base(name, width) for _, name, width, _ in SIZES}, COMPOSED_STEPS),
    measure=measure_composed,
    seeds=(0, 1, 2),
    search_seeds=(100,),
    search_by="validation_bits",
    search_higher_is_better=False,
    search_steps=SEARCH_STEPS,
)

CLAIMS = (MODULES, COMPOSED)
