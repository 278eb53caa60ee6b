"""The claims about models on kinship problems."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from experiments import runtime
from experiments.kinship import clauses, figures, measures, parts
from experiments.kinship.config import Config, get_config
from experiments.runtime.claims import Claim, Comparison, Line, Model, Run, equal_time
from folnet import kinship

RATES = ({"lr": 1e-3}, {"lr": 2e-3}, {"lr": 4e-3})
STEPS = 5000
ALL_SECONDS, FEWER_SECONDS = 0.0282, 0.0226
"""Seconds per step on two quiet CPU cores, 2026-11-21, jax 0.12.0: the means of three runs."""


def measure(run: Run) -> dict[str, Any]:
    """Measures the mean accuracy over the lengths of the metric, each length's, and the curve."""
    line = measures.line(run.config, run.result, run.workdir)
    accuracies = {f"k{name}": share for name, share in line["accuracies"].items()}
    return {"mean": line["metric"]["value"], **accuracies, "line": line}


def figures_of(stem: str) -> Callable[[Mapping[str, Sequence[Line]]], Mapping[str, Any]]:
    """Returns the `figures` of a comparison, whose names begin with `stem`.

    None is over seconds: those of claims are not measured quietly. Runs that are evaluated at their end alone
    have no curve over steps.
    """

    def draw(runs: Mapping[str, Sequence[Line]]) -> Mapping[str, Any]:
        lines = {}
        for of_model in runs.values():
            records = [line["measurements"]["line"] for line in of_model]
            lines[records[0]["model"]] = records
        drawn = figures.of_lines(lines)
        curves = any(len(record["curve"]) > 1 for records in lines.values() for record in records)
        names = ("by_length", "by_steps") if curves else ("by_length",)
        return {f"{stem}_{name}": drawn[name] for name in names}

    return draw


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
    figures=figures_of("kinship/operators"),
)

LOOPED_STEPS, SEARCH_STEPS = 2000, 1000
LEARNED = 0.99


def measure_generalization(run: Run) -> dict[str, Any]:
    """Measures what `measure` does, and the step from which training problems are answered.

    It is the first logged step with an accuracy of at least `LEARNED` in the batches since the one before.
    """
    rows = runtime.metrics.read(run.workdir / "metrics.jsonl")
    steps = (row["step"] for row in rows if (row.get("accuracy") or 0) >= LEARNED)
    return {**measure(run), "learned_at": next(steps, None)}


LOOPED = dataclasses.replace(get_config("looped"), eval_every=1000)
READERS = dataclasses.replace(
    LOOPED, match="jmc.atp", pairs=dataclasses.replace(LOOPED.pairs, people=parts.NAMED)
)
MARKED = {"pairs.people": parts.MARKED, "pairs.supervised": False}
_RATES = (2e-3, 4e-3, 8e-3)
_COMPOSING = tuple({"lr": lr, "pairs.test_loops": loops} for lr in _RATES for loops in (12, 16, 20))
"""Rates and loops, for models that compose pairs; nothing tells people apart but the facts."""
_READING = tuple(
    {"lr": lr, **how}
    for lr in _RATES
    for how in ({"pairs.test_loops": 20}, {"pairs.test_loops": 4}, {"pairs.test_loops": 4, **MARKED})
)
"""Rates; names and all pairs, answered after 20 loops or as many as learned; or marks and the question."""
_CONVOLVING = tuple(
    {"lr": lr, **how} for lr in (1e-3, *_RATES, 16e-3) for how in ({}, MARKED) if how or lr < 16e-3
)
"""The same for the graph convolutional network, whose layers are not looped, so more rates are left."""
LAYERS = 6
"""Its number of layers, so that messages from both ends of 10 facts meet."""
_OURS = 0.02258
"""Seconds per step of FOLNet jmc.atp on two quiet CPU cores, 2026-11-24, jax 0.12.0: median of three runs."""
_BASELINES: tuple[tuple[str, str, int, float, int], ...] = (
    ("FOLNet j.a", "j.a", 36_747, 0.01427, 10),
    ("BERT, pre-LN", parts.BERT_PRE, 36_779, 0.01575, 10),
    ("relation-aware Transformer", parts.RELATION_AWARE, 36_751, 0.009866, 10),
    ("R-GCN", parts.RGCN, 36_533, 0.003217, 10),
    ("BERT, post-LN", parts.BERT, 36_780, 0.01638, 5),
    ("T5's bias", parts.T5, 36_734, 0.0174, 5),
    ("FOLNet j.at", "j.at", 36_225, 0.01874, 5),
    ("FOLNet jm.atp", "jm.atp", 36_204, 0.02376, 5),
    ("Edge Transformer", parts.EDGE_TRANSFORMER, 36_192, 0.04756, 5),
)
"""Names, models, parameters, seconds per step as of `_OURS`, and numbers of seeds."""
_COMPOSES = ("j.at", "jm.atp", parts.EDGE_TRANSFORMER)


def _models(lengths: tuple[int, ...], longer: tuple[int, ...]) -> tuple[Model, ...]:
    """Returns FOLNet with all operators and the baselines, trained on `lengths` and measured on `longer`."""

    def on(config: Config) -> Config:
        data = dataclasses.replace(config.data, train_lengths=lengths)
        return dataclasses.replace(config, data=data, metric_lengths=longer)

    steps: Mapping[str, int] = {"equal_steps": LOOPED_STEPS, "equal_time": LOOPED_STEPS}
    found = [Model("FOLNet jmc.atp", on(LOOPED), 36_213, steps, _COMPOSING, step_seconds=_OURS)]
    for name, model, parameters, seconds, seeds in _BASELINES:
        base = dataclasses.replace(READERS, model=model)
        search = _CONVOLVING if model == parts.RGCN else _READING
        if model == parts.RGCN:
            base = dataclasses.replace(base, pairs=dataclasses.replace(base.pairs, loops=LAYERS, ahead=0))
        elif model in _COMPOSES:
            base, search = dataclasses.replace(base, pairs=LOOPED.pairs), _COMPOSING
        found.append(
            Model(
                name,
                on(base),
                parameters,
                {**steps, "equal_time": equal_time(LOOPED_STEPS, _OURS, seconds, multiple_of=50)},
                search=search,
                num_seeds=seeds,
                compared=model not in _COMPOSES,
                step_seconds=seconds,
            )
        )
    return tuple(found)


def _generalization(
    name: str, lengths: tuple[int, ...], longer: tuple[int, ...], target: float
) -> Comparison:
    """Returns the comparison of models trained on `lengths` by their accuracy on `longer`."""
    trained, tested = (
        f"{', '.join(map(str, some[:-1]))} and {some[-1]}" if len(some) < 4 else f"{some[0]} to {some[-1]}"
        for some in (lengths, longer)
    )
    return Comparison(
        name=name,
        claims=tuple(
            Claim(
                id=f"{name}.{budget}",
                claim=f"trained on chains of {trained} facts, FOLNet with all operators answers {target:.0%} "
                f"of those of {tested} facts, and more than each model that does not compose pairs",
                measure=f"mean accuracy over k = {tested}",
                value="mean",
                budget=budget,
                tests=("mean", "unpaired"),
                target=target,
            )
            for budget in ("equal_steps", "equal_time")
        ),
        models=_models(lengths, longer),
        measure=measure_generalization,
        seeds=tuple(range(10)),
        search_seeds=(100,),
        search_by="mean",
        search_steps=SEARCH_STEPS,
        figures=figures_of(name.replace(".", "/")),
    )


GENERALIZATION = _generalization("kinship.generalization", (2, 3), tuple(range(4, 11)), 0.90)
K234 = _generalization("kinship.k234", (2, 3, 4), tuple(range(5, 11)), 0.98)

_ABLATED = {"jmc.ap": 36_207, "jm.ap": 36_198, "j.a": 36_219}
"""Operators without trans, and parameters."""
_WITH_TRANS = {"jm.atp": 36_204, "j.atp": 36_184, "j.at": 36_225}
"""The paper adds operators one by one (Table 3): from j.at on, these have trans."""

ABLATIONS = Comparison(
    name="kinship.ablations",
    claims=(
        Claim(
            id="kinship.ablations",
            claim="trained in loops on chains of 2 and 3 facts, FOLNet with all operators answers more of "
            "the longer ones than without trans, whichever other operators it has",
            measure="mean accuracy over k = 4 to 10",
            value="mean",
            tests=("unpaired",),
        ),
    ),
    models=tuple(
        Model(
            f"FOLNet {operators}",
            dataclasses.replace(LOOPED, model=operators, match="jmc.atp"),
            parameters,
            LOOPED_STEPS,
            search=tuple({"lr": lr} for lr in (4e-3, 8e-3)),
            compared=operators not in _WITH_TRANS,
        )
        for operators, parameters in {"jmc.atp": 36_213, **_ABLATED, **_WITH_TRANS}.items()
    ),
    measure=measure_generalization,
    seeds=(0, 1, 2, 3, 4),
    search_seeds=(100,),
    search_by="mean",
    search_steps=SEARCH_STEPS,
    figures=figures_of("kinship/ablations"),
)


def measure_rules(run: Run) -> dict[str, Any]:
    """Measures what `measure` does, and how many of the run's answers its Horn clauses explain."""
    probabilities, config = clauses.of_run(run.workdir)
    found = clauses.report(probabilities, kinship.Kinship(clauses.SEED, config.data.test_lengths))
    said = {(clause.first, clause.second): clause.conclusion for clause in found.clauses}
    recovered = sum(said.get(pair) == relation for pair, relation in kinship.COMPOSITIONS.items())
    return {
        **measure(run),
        "agreement": found.agrees / found.total,
        "recovered": recovered,
        "clauses": len(found.clauses),
    }


RULES = Comparison(
    name="kinship.rules",
    claims=(
        Claim(
            id="kinship.rules",
            claim="the Horn clauses read from a looped FOLNet, trained on chains of 2 and 3 facts, give its "
            "own answers to 95% of new problems of 2 to 10 facts",
            measure=f"share of {clauses.PROBLEMS:,} problems with the same answer",
            value="agreement",
            tests=("threshold",),
            target=0.95,
        ),
    ),
    models=(Model("FOLNet jmc.atp", dataclasses.replace(LOOPED, lr=8e-3), 36_213, LOOPED_STEPS),),
    measure=measure_rules,
    seeds=(0, 1, 2, 3, 4),
)

CLAIMS = (OPERATORS, GENERALIZATION, K234, ABLATIONS, RULES)
