"""The claims about learning in results/folnet: the preset `quick` of `folnet_pretrain`, three seeds.

    python -m benchmarks.folnet_learning --workdir=runs/folnet-claims

A run trains FOLNet, then the Transformer of as many parameters for as many seconds; the Transformer is also
looked at after as many steps. Writes to `results/folnet/`: `learning.jsonl` (a line a seed and model: losses
of held-out text beside the entropy of word frequencies, times, versions, commit) and `learning.md`, the
table. What is interrupted goes on where it was; `--draw_only` writes the table again.
"""

import dataclasses
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from absl import app, flags, logging

from benchmarks import timing
from experiments import runtime
from experiments.folnet_pretrain import config as presets
from experiments.folnet_pretrain import measures
from experiments.folnet_pretrain import train as experiment
from experiments.folnet_pretrain.config import Config

SEEDS = 3


def run(config: Config, workdir: Path) -> list[dict[str, Any]]:
    """Trains both models with one seed; a line each."""
    results = experiment.main(config, workdir=workdir)
    lines = []
    for name, result in results.items():
        below = workdir / name if name == experiment.BASELINE else workdir
        lines.append(
            {
                "preset": "quick",
                "model": name,
                "seed": config.seed,
                "parameters": result.results["parameters"],
                "steps": result.step,
                "held_out": result.metrics["eval/mlm_loss"],
                "held_out_accuracy": result.metrics["eval/mlm_accuracy"],
                "held_out_after_equal_steps": measures.recorded(below, config.steps),
                "unigram_entropy": result.results["unigram_entropy"],
                "below_the_entropy_from": measures.first_below(below, result.results["unigram_entropy"]),
                "train_seconds": round(result.train_seconds, 1),
                "compile_seconds": result.summary["compile_seconds"],
                "wall_seconds": result.summary["wall_seconds"],
                "command": "python -m experiments.folnet_pretrain "
                f"--config=quick --config.seed={config.seed}",
                "params_sha256": result.summary["params_sha256"],
                **timing.where_and_when(),
            }
        )
    return lines


def mean(values: Iterable[float]) -> str:
    """The mean with its 95 % interval over seeds."""
    values = list(values)
    if len(values) < 2:
        return f"{values[0]:.2f}"
    found, low, high = runtime.intervals.mean_interval(values)
    return f"{found:.2f} ({low:.2f} to {high:.2f})"


def table(lines: Sequence[Mapping[str, Any]]) -> str:
    """Every line as a row of a Markdown table, and the means."""
    columns = ("model", "parameters", "seed", "loss after equal steps", "loss after equal time", "filled in")
    columns += ("steps", "below the line from step", "seconds", "commit")
    text = [
        "# FOLNet: what was learned",
        "",
        "The preset `quick`: the reference of the Python language, documents held out; the loss is in nats a",
        f"masked word. Word frequencies alone have {lines[0]['unigram_entropy']:.2f} (the line). Made by",
        "`python -m benchmarks.folnet_learning`.",
        "",
        f"| {' | '.join(columns)} |",
        "|---" * len(columns) + "|",
    ]
    for line in lines:
        steps = line["held_out_after_equal_steps"]
        cells = [
            line["model"],
            line["parameters"],
            line["seed"],
            "-" if steps is None else f"{steps:.2f}",
            f"{line['held_out']:.2f}",
            f"{line['held_out_accuracy']:.1%}",
            line["steps"],
            line["below_the_entropy_from"],
            line["train_seconds"],
            (line["commit"] or "")[:12],
        ]
        text.append("| " + " | ".join(map(str, cells)) + " |")
    text.append("")
    for model in dict.fromkeys(line["model"] for line in lines):
        of_model = [line for line in lines if line["model"] == model]
        steps = [line["held_out_after_equal_steps"] for line in of_model]
        text.append(
            f"{model}, mean over {len(of_model)} seeds with its 95 % interval: "
            f"{mean(steps) if None not in steps else '-'} after equal steps, "
            f"{mean(line['held_out'] for line in of_model)} after equal time."
        )
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
        lines = []
        for seed in range(flags.FLAGS.seeds):
            config = dataclasses.replace(presets.get_config("quick"), seed=seed)
            lines += run(config, Path(flags.FLAGS.workdir) / f"seed-{seed}")
            out.mkdir(parents=True, exist_ok=True)
            file.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    (out / "learning.md").write_text(table(lines), encoding="utf-8")
    print(table(lines))


if __name__ == "__main__":
    logging.set_verbosity(logging.WARNING)
    flags.DEFINE_string("workdir", "runs/folnet-claims", "where the runs are kept")
    flags.DEFINE_string("out", "results/folnet", "where the record goes")
    flags.DEFINE_integer("seeds", SEEDS, "how many", lower_bound=1)
    flags.DEFINE_bool("draw_only", False, "train nothing")
    app.run(main)
