"""The claims about agents in BoxWorld."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from experiments import runtime
from experiments.boxworld.config import Config, Kind, get_config
from experiments.runtime.claims import Claim, Comparison, Line, Model, Run

RATES = ({"lr": 1e-3}, {"lr": 3e-3}, {"lr": 1e-2})


def measure(run: Run) -> dict[str, Any]:
    """Measures the fraction of fresh boards solved, a random policy's, and the curve during training."""
    from experiments.boxworld import figures  # a program too: loaded with the package, it would warn

    found = figures.curve(runtime.metrics.read(run.workdir / "metrics.jsonl"))
    curve = None
    if found is not None:
        curve = {"frames": found.frames.tolist(), "solved": np.round(found.solved, 4).tolist()}
    results = run.result.results
    return {"solved": results["agent"]["solved"], "chance": results["chance"]["solved"], "curve": curve}


def _agent(kind: Kind) -> Config:
    config = get_config("quick")
    return dataclasses.replace(config, agent=dataclasses.replace(config.agent, kind=kind))


def _learning(runs: Mapping[str, Sequence[Line]]) -> Any:
    """Draws the fraction of training episodes solved, over the seeds of each agent."""
    curves: dict[str, Any] = {}
    for model, lines in runs.items():
        found = [line["measurements"]["curve"] for line in lines]
        # Windows hold equally many episodes, not equally many frames: curves are compared at the same frames.
        places = np.linspace(0.05, 1, 40) * min(curve["frames"][-1] for curve in found)
        rows = [np.interp(places, curve["frames"], curve["solved"]).tolist() for curve in found]
        curves[model] = (places / 1e6, *runtime.intervals.mean_band(rows))
    chance = [line["measurements"]["chance"] for lines in runs.values() for line in lines]
    end = max(float(parts[0][-1]) for parts in curves.values())
    curves["random policy"] = ([0, end], [float(np.mean(chance))] * 2)
    return runtime.plots.curve_figure(
        curves,
        title="quick: fraction of training episodes solved; mean over seeds, 95 %",
        xlabel="environment steps / 10⁶",
        ylabel="solved",
        ylim=(0, 1),
    )


QUICK = Comparison(
    name="boxworld.quick",
    claims=(
        Claim(
            id="boxworld.quick",
            claim="agents learn a 5 x 6 board with one key and at most one distractor",
            measure="fraction of 1,000 fresh boards solved after 1.2 million environment steps",
            value="solved",
        ),
    ),
    models=(
        Model("simplicial", _agent("simplicial"), 20_873, 480, search=RATES),
        Model(
            "relational",
            _agent("relational"),
            14_089,
            480,
            search=RATES,
            exception="as in the paper, it is our agent without what makes it simplicial",
        ),
    ),
    measure=measure,
    seeds=(0, 1, 2, 3, 4),
    search_seeds=(100,),
    search_by="solved",
    figures=lambda runs: {"boxworld/learning": _learning(runs)},
)

CLAIMS = (QUICK,)
