"""Both agents on the small board of `quick`: fractions solved, beside those of a random policy."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

import jax
import numpy as np

from benchmarks import machine, records
from benchmarks.records import Line
from experiments import boxworld, runtime
from experiments.boxworld import figures
from experiments.boxworld.config import Kind

AGENTS = ("simplicial", "relational")


def configure(config: boxworld.Config, agent: str) -> boxworld.Config:
    """The preset with an agent."""
    config.agent.kind = cast(Kind, agent)
    return config


def lines(run: records.Run) -> Iterator[tuple[runtime.FitResult, dict[str, Any]]]:
    """The agent's line."""
    (result,), agent = run.results.values(), run.config.agent.kind
    found = figures.curve(runtime.metrics.read(run.workdir / "metrics.jsonl"))
    yield (
        result,
        {
            "agent": agent,
            "parameters": sum(leaf.size for leaf in jax.tree.leaves(result.params)),
            "results": result.results,
            "curve": None
            if found is None
            else {"steps": found.frames.tolist(), "solved": np.round(found.solved, 4).tolist()},
            "steps": result.step * run.config.frames_per_step,
            "command": f"python -m experiments.boxworld --config={run.preset} --config.agent.kind={agent} "
            f"--config.seed={run.config.seed}",
        },
    )


def drawn(lines: Sequence[Line]) -> Mapping[str, Any]:
    """Fractions solved during training, over seeds."""
    curves: dict[str, Any] = {}
    for agent, runs in records.grouped(lines, "agent").items():
        found = [line["curve"] for line in runs]
        # Windows hold as many episodes, not as many steps: curves are compared at the same places.
        places = np.linspace(0.05, 1, 40) * min(curve["steps"][-1] for curve in found)
        rows = [np.interp(places, curve["steps"], curve["solved"]) for curve in found]
        curves[f"{agent}, mean of {len(found)}"] = (places / 1e6, *records.band(rows))
    chance = [line["results"]["chance"]["solved"] for line in lines]
    ends = [0, max(float(parts[0][-1]) for parts in curves.values())]
    curves["random policy"] = (ends, [float(np.mean(chance))] * 2)
    figure = runtime.plots.curve_figure(
        curves,
        title="quick: fraction of training episodes solved",
        xlabel="steps / 10⁶ (band: 95 % interval over seeds)",
        ylabel="solved",
        ylim=(0, 1),
    )
    return {"learning": figure}


TEXT = """\
# BoxWorld: what was learned

The preset `quick`: a 5 x 6 board, one key, at most one distractor, 40 steps at most; not the
paper's environment. Boards are fresh ones; intervals are Wilson's, 95 %. Made by
`python -m benchmarks.learning --only=boxworld`.

"""
HEAD = ("agent", "parameters", "seed", "solved", "interval", "random policy", "interval", "steps")
HEAD += ("seconds", "commit")


def table(lines: Sequence[Line]) -> str:
    """Every line as a row."""
    rows = []
    for line in sorted(lines, key=lambda line: (AGENTS.index(line["agent"]), line["seed"])):
        found = [line["results"][name] for name in ("agent", "chance")]
        shares = [(f"{one['solved']:.3f}", "{:.3f} to {:.3f}".format(*one["interval"])) for one in found]
        last = line["steps"], line["train_seconds"], records.commit(line)
        rows.append((line["agent"], line["parameters"], line["seed"], *shares[0], *shares[1], *last))
    return TEXT + machine.markdown(HEAD, rows)


ROOM = records.Room(
    experiment=boxworld.EXPERIMENT,
    folder="boxworld",
    presets={"quick": 3},
    lines=lines,
    table=table,
    figures=drawn,
    variants=AGENTS,
    configure=configure,
    variant=lambda line: line["agent"],
)
