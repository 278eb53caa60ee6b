"""The claims about learning in results/boxworld: the preset `quick`, both agents, three seeds each.

    python -m benchmarks.boxworld_learning --workdir=runs/boxworld-claims

Writes to `results/boxworld/`: `learning.jsonl` (a line for each agent and seed: fractions solved with their
intervals, beside a random policy's on as many boards, times, versions, commit), the curves over seeds, and
`learning.md`, the table. What is interrupted goes on where it was; `--draw_only` draws again from the lines
that are there.
"""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from absl import app, flags, logging

from benchmarks import timing
from experiments import runtime
from experiments.boxworld import config as presets
from experiments.boxworld import figures as boxworld_figures
from experiments.boxworld import train as boxworld

AGENTS, SEEDS = ("simplicial", "relational"), 3


def run(agent: str, seed: int, workdir: Path) -> dict[str, Any]:
    """Trains one agent with one seed; its line."""
    config = dataclasses.replace(presets.get_config("quick"), seed=seed)
    config.agent.kind = agent
    result = boxworld.main(config, workdir=workdir)
    found = boxworld_figures.curve(runtime.metrics.read(workdir / "metrics.jsonl"))
    return {
        "preset": "quick",
        "agent": agent,
        "seed": seed,
        "parameters": sum(leaf.size for leaf in jax.tree.leaves(result.params)),
        "steps": result.step * config.frames_per_step,
        "train_seconds": round(result.train_seconds, 1),
        "compile_seconds": result.summary["compile_seconds"],
        "wall_seconds": result.summary["wall_seconds"],
        "results": result.results,
        "curve": None
        if found is None
        else {"steps": found.frames.tolist(), "solved": np.round(found.solved, 4).tolist()},
        "command": "python -m experiments.boxworld --config=quick "
        f"--config.agent.kind={agent} --config.seed={seed}",
        "params_sha256": result.summary["params_sha256"],
        **timing.where_and_when(),
    }


def draw(lines: Sequence[Mapping[str, Any]], out: Path) -> None:
    """The curves and the table."""
    curves: dict[str, Any] = {}
    for agent in dict.fromkeys(line["agent"] for line in lines):
        found = [line["curve"] for line in lines if line["agent"] == agent]
        # Windows hold as many episodes, not as many steps: curves are compared at the same places.
        places = np.linspace(0.05, 1, 40) * min(curve["steps"][-1] for curve in found)
        values = [np.interp(places, curve["steps"], curve["solved"]) for curve in found]
        rows = np.asarray([runtime.intervals.mean_interval(column) for column in np.transpose(values)])
        mean, low, high = np.clip(rows, 0, 1).T
        curves[f"{agent}, mean of {len(found)}"] = (places / 1e6, mean, low, high)
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
    runtime.plots.save(figure, out / "learning.png")
    (out / "learning.md").write_text(table(lines), encoding="utf-8")


def table(lines: Sequence[Mapping[str, Any]]) -> str:
    """Every line as a row of a Markdown table."""
    columns = ("agent", "parameters", "seed", "solved", "interval", "random policy", "interval", "steps")
    columns += ("seconds", "commit")
    text = [
        "# BoxWorld: what was learned",
        "",
        "The preset `quick`: a 5 x 6 board, one key, at most one distractor, 40 steps at most; not the",
        "paper's environment. Boards are fresh ones; intervals are Wilson's, 95 %. Made by",
        "`python -m benchmarks.boxworld_learning`.",
        "",
        f"| {' | '.join(columns)} |",
        "|---" * len(columns) + "|",
    ]
    for line in lines:
        agent, chance = (line["results"][name] for name in ("agent", "chance"))
        cells = [
            line["agent"],
            line["parameters"],
            line["seed"],
            f"{agent['solved']:.3f}",
            "{:.3f} to {:.3f}".format(*agent["interval"]),
            f"{chance['solved']:.3f}",
            "{:.3f} to {:.3f}".format(*chance["interval"]),
            line["steps"],
            line["train_seconds"],
            (line["commit"] or "")[:12],
        ]
        text.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(text) + "\n"


def main(arguments: Sequence[str]) -> None:
    """The program."""
    if len(arguments) > 1:
        raise app.UsageError(f"unexpected argument {arguments[1]!r}")
    out = Path(flags.FLAGS.out)
    file = out / "learning.jsonl"
    if flags.FLAGS.draw_only:
        lines = [json.loads(text) for text in file.read_text(encoding="utf-8").splitlines()]
    else:
        workdir = Path(flags.FLAGS.workdir)
        lines = []
        for agent in AGENTS:
            for seed in range(SEEDS):
                lines.append(run(agent, seed, workdir / f"{agent}-{seed}"))
                out.mkdir(parents=True, exist_ok=True)
                file.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    draw(lines, out)
    print(table(lines))


if __name__ == "__main__":
    logging.set_verbosity(logging.WARNING)
    flags.DEFINE_string("workdir", "runs/boxworld-claims", "where the runs are kept")
    flags.DEFINE_string("out", "results/boxworld", "where the record and the pictures go")
    flags.DEFINE_bool("draw_only", False, "train nothing")
    app.run(main)
