"""Releases trained weights: packs any run into a small folder with a model card, and unpacks it again.

    python -m experiments.weights --pack=runs/copy --to=results/llrnn/copy
    python -m experiments.weights --unpack=llrnn/copy --to=runs/copy
    python -m experiments.weights --card=results/llrnn/copy

The first command releases a run of any experiment (the whole state in one safetensors file) and writes its
model card; the second makes a workdir from it, in which training can continue; the third rewrites the card.
To load the model in Python: `experiments.registry.open_model("llrnn/copy")`.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from absl import app, flags

from experiments import runtime
from experiments.registry import read_run
from experiments.runtime import packing, releasing
from experiments.runtime.claim_lines import hardware
from experiments.runtime.workdir import read_json

CARD = "README.md"
_OF_STARTS = ("best_start", "starts_seconds", "success_rate")


def abstract_state(path: Path) -> Any:
    """Returns the shapes, dtypes and shardings of the state of a run or a released folder.

    Raises:
        ValueError: if `path` is neither, or its experiment does not release runs.
    """
    experiment, config = read_run(path)
    if experiment.abstract_state is None:
        raise ValueError(f"{path}: got a run of {experiment.name!r}, whose runs are not released as folders")
    return experiment.abstract_state(config)


def card(folder: Path) -> str:
    """Returns the model card of a released folder in Markdown: data, licence, training, and measurements.

    Raises:
        ValueError: if the folder is not a released run, has no summary, or its experiment has no card.
    """
    experiment, config = read_run(folder)
    if experiment.card is None:
        raise ValueError(f"{folder}: got a run of {experiment.name!r}, which has no card")
    if not releasing.is_released(folder):
        raise ValueError(
            f"{folder}: got no {packing.STATE}, expected a released run (use --pack to release one)"
        )
    try:
        summary = read_json(folder / "summary.json")
    except (OSError, ValueError) as error:
        raise ValueError(f"{folder}: no summary of a finished run: {error}") from error
    versions, seconds = summary["versions"], summary["train_seconds"]
    seconds += summary["results"].get("starts_seconds", 0)
    data, limits = (
        part(config) if callable(part) else part for part in (experiment.card.data, experiment.card.limits)
    )
    name, dash, dirty = (summary["commit"] or "unknown").partition("-")
    lines = [
        f"# {folder.name}: {experiment.card.title(config)}",
        "",
        f"Trained by `experiments.{experiment.name}`. `{packing.STATE}` has the whole state, parameters and "
        f"optimizer, after",
        f"step {summary['step']}. To load the model:",
        "",
        "```python",
        "from experiments.registry import open_model",
        "",
        f'model = open_model("{_name(folder)}")',
        "# model.function(model.params, inputs); model.inputs has their names, shapes and dtypes",
        "```",
        "",
        "| | |",
        "|---|---|",
        f"| data | {data} |",
        "| licence | Apache-2.0, as the code |",
        f"| trained | {seconds:.0f} s on {hardware(summary['devices'])}, jax {versions['jax']}, "
        f"commit {name[:12]}{dash}{dirty}, seed {config.seed} |",
        "| files | settings in `config.json`, metrics of the training in `metrics.jsonl` |",
        f"| SHA-256 of the parameters | {summary['params_sha256']} |",
        f"| limitations | {limits} |",
        "",
        "Measured by the same program at the end of training:",
        "",
        "| | |",
        "|---|---|",
        *(f"| {name} | {numbers} |" for name, numbers in measured(summary["results"])),
    ]
    return "\n".join(lines) + "\n"


def _name(folder: Path) -> str:
    """Returns a released model's name, which finds it in a checkout and in a wheel; of others, the path."""
    names = (name for name, path in releasing.released().items() if path.resolve() == folder.resolve())
    return next(names, folder.as_posix())


def measured(results: Mapping[str, Any], name: str = "all") -> Iterator[tuple[str, str]]:
    """Yields the numbers in a run's results, one row per nested mapping; strings and lists are omitted.

    The starts of a run that had several (`runtime.restarts`) have a row in words.
    """
    if starts := results.get("starts"):
        results = {key: value for key, value in results.items() if key not in _OF_STARTS}
        yield "starts", f"{len(starts)}, of which the one with the least training loss continued"
    numbers = [f"{key} {_shown(value)}" for key, value in results.items() if _shown(value)]
    if numbers:
        yield name, ", ".join(numbers).replace("_", " ")
    for key, value in results.items():
        if isinstance(value, Mapping):
            yield from measured(value, key if name == "all" else f"{name}/{key}")


def _shown(value: Any) -> str:
    """Formats a number or an interval; returns "" for anything else."""
    if isinstance(value, bool):
        return ""
    if isinstance(value, int | float):
        return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"
    if isinstance(value, list) and len(value) == 2 and all(isinstance(end, float) for end in value):
        return " to ".join(f"{end:.4g}" for end in value)
    return ""


def main() -> None:
    """Packs or unpacks a run, or writes a card, depending on the flags."""
    values = flags.FLAGS
    if (values.to is None) == (values.card is None):
        raise app.UsageError(f"--to: got {values.to}, expected a folder with --pack or --unpack only")
    if values.card is None:
        source, target = releasing.find(values.pack or values.unpack), Path(values.to)
        release = bool(values.pack)
        print(releasing.transfer(source, target, abstract_state(source), release=release))
    else:
        target, release = Path(values.card), True
    if release:
        (target / CARD).write_text(card(target), encoding="utf-8")
        print(target / CARD)


if __name__ == "__main__":
    flags.DEFINE_string("pack", None, "directory of a run to release")
    flags.DEFINE_string("unpack", None, "released folder, or its name, to continue training from")
    flags.DEFINE_string("card", None, "released folder whose card to rewrite")
    flags.DEFINE_string("to", None, "target folder of --pack, or workdir of --unpack")
    flags.mark_flags_as_mutual_exclusive(["pack", "unpack", "card"], required=True)
    runtime.run_program(main, reports=(ValueError, runtime.CheckpointError))
