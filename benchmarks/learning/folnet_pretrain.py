"""FOLNet and the Transformer of as many parameters, pretrained for as many seconds: held-out losses.

A run trains FOLNet, then the Transformer, which is also looked at after as many steps.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from benchmarks import machine, records
from benchmarks.records import Line
from experiments import folnet_pretrain, runtime
from experiments.folnet_pretrain import measures
from experiments.folnet_pretrain.train import BASELINE

TEXT = """\
# FOLNet: what was learned

The preset `quick`: the reference of the Python language, documents held out; the loss is in nats a
masked word. Word frequencies alone have {:.2f} (the line). Made by
`python -m benchmarks.learning --only=folnet_pretrain`.

"""
HEAD = ("model", "parameters", "seed", "loss after equal steps", "loss after equal time", "filled in")
HEAD += ("steps", "below the line from step", "seconds", "commit")


def lines(run: records.Run) -> Iterator[tuple[runtime.FitResult, dict[str, Any]]]:
    """A line for each model."""
    for name, result in run.results.items():
        below = run.workdir / name if name == BASELINE else run.workdir
        entropy = result.results["unigram_entropy"]
        yield (
            result,
            {
                "model": name,
                "parameters": result.results["parameters"],
                "held_out": result.metrics["eval/mlm_loss"],
                "held_out_accuracy": result.metrics["eval/mlm_accuracy"],
                "held_out_after_equal_steps": measures.recorded(below, run.config.steps),
                "unigram_entropy": entropy,
                "below_the_entropy_from": measures.first_below(below, entropy),
            },
        )


def table(lines: Sequence[Line]) -> str:
    """Every line as a row, and the means."""
    rows, means = [], []
    for line in lines:
        steps = line["held_out_after_equal_steps"]
        losses = "-" if steps is None else f"{steps:.2f}", f"{line['held_out']:.2f}"
        rows.append(
            (line["model"], line["parameters"], line["seed"], *losses, f"{line['held_out_accuracy']:.1%}")
        )
        rows[-1] += (
            line["steps"],
            line["below_the_entropy_from"],
            line["train_seconds"],
            records.commit(line),
        )
    for model, runs in records.grouped(lines, "model").items():
        steps = [line["held_out_after_equal_steps"] for line in runs]
        means.append(
            f"{model}, mean over {len(runs)} seeds with its 95 % interval: "
            f"{'-' if None in steps else records.spread(steps, 2)} after equal steps, "
            f"{records.spread([line['held_out'] for line in runs], 2)} after equal time.\n"
        )
    return TEXT.format(lines[0]["unigram_entropy"]) + machine.markdown(HEAD, rows) + "\n" + "".join(means)


ROOM = records.Room(
    experiment=folnet_pretrain.EXPERIMENT, folder="folnet", presets={"quick": 3}, lines=lines, table=table
)
