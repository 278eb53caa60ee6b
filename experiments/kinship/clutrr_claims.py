"""The claims about models on CLUTRR's published graphs."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from experiments.kinship import measures, parts
from experiments.kinship.claims import LAYERS, LOOPED, MARKED, READERS, SEARCH_STEPS, figures_of, measure
from experiments.kinship.config import Config
from experiments.runtime.claims import Claim, Comparison, Model, Run

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

CLAIMS = (CLUTRR_K23, CLUTRR_K234)
