"""The claims about models on CLUTRR's published graphs and stories."""

import dataclasses
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from experiments import runtime
from experiments.kinship import measures, parts
from experiments.kinship.claims import LAYERS, LOOPED, MARKED, READERS, SEARCH_STEPS, figures_of, measure
from experiments.kinship.config import Config, get_config
from experiments.runtime.claims import Claim, Comparison, Model, Run, equal_time

STEPS = 4000
_RATES = (4e-3, 8e-3)


def measure_published(run: Run) -> dict[str, Any]:
    """Measures what `measure` does, and the mean accuracy on generated problems of the same lengths.

    The latter chooses settings, so that nothing is chosen by the published tests.
    """
    return {**measure(run), "generated": measures.of_generated(run.config, run.result.params)}


def _with_data(config: Config, folder: Path) -> Config:
    return dataclasses.replace(config, data=dataclasses.replace(config.data, clutrr=str(folder)))


def _published(name: str, lengths: tuple[int, ...], target: float | None) -> Comparison:
    """Returns the comparison of models trained on CLUTRR's graphs of `lengths` facts.

    With a `target`, the mean over the seeds should reach it at 10 facts. The first attempt, without labels of
    people with themselves, was given up after its seed 0 had answered .926 of the stories of 10 facts: all of
    its errors there were in stories that lead back to someone.
    """
    longer = tuple(range(max(lengths) + 1, 11))
    trained = f"{', '.join(map(str, lengths[:-1]))} and {lengths[-1]}"

    def on(config: Config) -> Config:
        data = dataclasses.replace(
            config.data,
            clutrr="clutrr",
            joined=True,
            pool=40_000,
            irrelevant=0,
            varied=False,
            train_lengths=lengths,
        )
        return dataclasses.replace(config, data=data, metric_lengths=longer, match="jmc.atp")

    # Stories lead back to people, of whom models otherwise say that they are their own sisters.
    alike, named = (dataclasses.replace(of.pairs, selves=True) for of in (LOOPED, READERS))
    ours = dataclasses.replace(LOOPED, pairs=alike)
    reading = dataclasses.replace(READERS, model=parts.RELATION_AWARE, pairs=named)
    convolving = dataclasses.replace(
        READERS, model=parts.RGCN, pairs=dataclasses.replace(named, loops=LAYERS, ahead=0)
    )
    edges = dataclasses.replace(ours, model=parts.EDGE_TRANSFORMER)
    rates = [{"lr": lr} for lr in _RATES]
    loops = [{"pairs.test_loops": count} for count in (14, 20)]
    marked = [{}, {"pairs.test_loops": 4, "pairs.selves": False, **MARKED}]

    def model(
        name: str, config: Config, parameters: int, ways: Sequence[Any], compared: bool = True
    ) -> Model:
        search = tuple({**rate, **way} for rate in rates for way in ways)
        return Model(name, on(config), parameters, STEPS, search, compared=compared)

    return Comparison(
        name=name,
        claims=(
            Claim(
                id=name,
                claim=f"trained on CLUTRR's graphs of {trained} facts, a looped FOLNet answers "
                + (f"{target:.0%} of those of 10 facts" if target else "those of 10 facts"),
                measure="accuracy at k = 10",
                value="k10",
                tests=("mean",) if target else (),
                target=target,
            ),
            Claim(
                id=f"{name}.baselines",
                claim=f"trained on CLUTRR's graphs of {trained} facts, a looped FOLNet answers more of the "
                "longer ones than models that do not compose pairs",
                measure=f"mean accuracy over k = {longer[0]} to 10",
                value="mean",
                tests=("unpaired",),
            ),
        ),
        models=(
            model("FOLNet jmc.atp", ours, 36_213, loops),
            model("relation-aware Transformer", reading, 36_751, marked),
            model("R-GCN", convolving, 36_533, marked),
            model("Edge Transformer", edges, 36_192, loops, compared=False),
        ),
        measure=measure_published,
        seeds=(10, 11, 12, 13, 14),
        search_seeds=(101,),
        search_by="generated",
        search_steps=SEARCH_STEPS,
        with_data=_with_data,
        figures=figures_of(name.replace(".", "/", 1).replace(".", "_")),
    )


CLUTRR_K23 = _published("clutrr.graph.k23", (2, 3), None)
CLUTRR_K234 = _published("clutrr.graph.k234", (2, 3, 4), 0.95)

STORIES = get_config("stories")


def measure_stories(run: Run) -> dict[str, Any]:
    """Measures what `measure` does, and the accuracy on the last training stories.

    The latter chooses settings, so that nothing is chosen by the published tests.
    """
    rows = runtime.metrics.read(run.workdir / "metrics.jsonl")
    rows = [row for row in rows if row.get("accuracy") is not None][-5:]
    shares = {name: statistics.fmean(row[name] for row in rows) for name in ("accuracy", "facts")}
    return {**measure(run), "trained": shares["accuracy"], "facts": shares["facts"]}


def _stories(model: str, parts_of_batch: int) -> Config:
    """Returns the config of a model that reads stories."""
    people = parts.ALIKE if model == STORIES.model else parts.NAMED
    pairs = dataclasses.replace(STORIES.pairs, people=people)
    return dataclasses.replace(STORIES, model=model, pairs=pairs, accumulate=parts_of_batch)


_OURS = 0.1215
"""Seconds per step of FOLNet on one quiet CPU core, as in `_READERS`."""
_READERS = (
    ("FOLNet jmc.atp", "jmc.atp", 8, 238_717, _OURS),
    ("BERT, pre-LN", parts.BERT_PRE, 4, 238_762, 0.02901),
    ("T5's bias", parts.T5, 4, 238_652, 0.02958),
)
"""Names, models, parts of a batch, parameters, and seconds per step on one quiet CPU core, 2026-11-26,
jax 0.12.0: means of steps of all widths of batches, weighted by how often they occur."""

CLUTRR_TEXT = Comparison(
    name="clutrr.text",
    claims=tuple(
        Claim(
            id=name,
            claim="trained on CLUTRR's stories of 2 to 4 facts without pretraining, a looped FOLNet answers "
            "longer ones better than looped Transformers",
            measure="mean accuracy over k = 5 to 10",
            value="mean",
            budget=budget,
            tests=("unpaired",),
            paper="with pretraining, 8 to 41 points above BERT at lengths that training lacks",
        )
        for name, budget in (("clutrr.text", "equal_steps"), ("clutrr.text.equal_time", "equal_time"))
    ),
    models=tuple(
        Model(
            name,
            _stories(model, parts_of_batch),
            parameters,
            {
                "equal_steps": STORIES.steps,
                "equal_time": equal_time(STORIES.steps, _OURS, seconds, multiple_of=200),
            },
            search=tuple({"lr": lr} for lr in (1e-3, 2e-3, 4e-3, 8e-3)),
            step_seconds=seconds,
        )
        for name, model, parts_of_batch, parameters, seconds in _READERS
    ),
    measure=measure_stories,
    seeds=(10, 11, 12),
    search_seeds=(101,),
    search_by="trained",
    search_steps=1500,
    with_data=_with_data,
    figures=figures_of("clutrr/text"),
)
"""The second attempt. In the first, small models read whole stories whose names were ordinary words, and had
not learned the training stories after 3,000 steps. Most names in the longer tests do not occur in training,
and a model that reads whole stories has never seen long ones; so names are tokens drawn for each story, and
every two successive sentences are read alone. Supervision is as for the graphs."""

CLAIMS = (CLUTRR_K23, CLUTRR_K234, CLUTRR_TEXT)
