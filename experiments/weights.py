"""Weights that are shipped: any run as a small folder, with a card that says what it is.

    python -m experiments.weights --pack=runs/copy --to=results/llrnn/copy
    python -m experiments.weights --unpack=results/llrnn/copy --to=runs/copy
    python -m experiments.weights --card=results/llrnn/copy

The first releases a run of any experiment (the whole state in one safetensors file) and writes its card, the
second makes a workdir of it in which training goes on, the third writes the card again. From Python:
`experiments.registry.open_model("results/llrnn/copy")`.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from absl import app, flags

from experiments import runtime
from experiments.registry import read_run
from experiments.runtime import packing, releasing
from experiments.runtime.workdir import read_json

CARD = "README.md"


def abstract_state(path: Path) -> Any:
    """Shapes, types and shardings of the state of a run or of a released folder.

    Raises:
        ValueError: it holds neither.
    """
    experiment, config = read_run(path)
    if experiment.abstract_state is None:
        raise ValueError(f"{path} is a run of {experiment.name}, whose runs are not released as folders")
    return experiment.abstract_state(config)


def card(folder: Path) -> str:
    """Returns what a user should know of a released folder: data, licence, training, what was measured.

    Raises:
        ValueError: it is no released run, or has no summary.
    """
    experiment, config = read_run(folder)
    if experiment.card is None:
        raise ValueError(f"{folder} is a run of {experiment.name}, which has no card")
    if not releasing.is_released(folder):
        raise ValueError(f"{folder} has no {packing.STATE}: a card is of a released run; --pack makes one")
    try:
        summary = read_json(folder / "summary.json")
    except (OSError, ValueError) as error:
        raise ValueError(f"{folder} has no summary of a finished run: {error}") from error
    devices, versions = summary["devices"], summary["versions"]
    where = f"{devices['cpus']} CPU cores" if devices["platform"] == "cpu" else devices["kind"]
    name, dash, dirty = (summary["commit"] or "unknown").partition("-")
    lines = [
        f"# {folder.name}: {experiment.card.title(config)}",
        "",
        f"Made by `experiments.{experiment.name}`; the whole state, parameters and optimizer, after step "
        f"{summary['step']}",
        f"(`{packing.STATE}`). Loaded by one line:",
        "",
        "```python",
        "from experiments.registry import open_model",
        "",
        f'model = open_model("{folder.as_posix()}")  # model.function(model.params, inputs), model.inputs',
        "```",
        "",
        "| | |",
        "|---|---|",
        f"| data | {experiment.card.data} |",
        "| licence | Apache-2.0, as the code |",
        f"| trained | {summary['train_seconds']:.0f} s on {where}, jax {versions['jax']}, "
        f"commit {name[:12]}{dash}{dirty}, seed {config.seed} |",
        "| settings | `config.json`; the record of training is `metrics.jsonl` |",
        f"| SHA-256 of the parameters | {summary['params_sha256']} |",
        f"| what it is not | {experiment.card.limits} |",
        "",
        "Measured at its end, by the same program:",
        "",
        "| | |",
        "|---|---|",
        *(f"| {name} | {told} |" for name, told in measured(summary["results"])),
    ]
    return "\n".join(lines) + "\n"


def measured(results: Mapping[str, Any], name: str = "all") -> Iterator[tuple[str, str]]:
    """The numbers in a run's results, a row for each part of them; texts and lists are left out."""
    told = [f"{key} {_shown(value)}" for key, value in results.items() if _shown(value)]
    if told:
        yield name, ", ".join(told).replace("_", " ")
    for key, value in results.items():
        if isinstance(value, Mapping):
            yield from measured(value, key if name == "all" else f"{name}/{key}")


def _shown(value: Any) -> str:
    """A number or an interval; nothing for what is neither."""
    if isinstance(value, bool):
        return ""
    if isinstance(value, int | float):
        return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"
    if isinstance(value, list) and len(value) == 2 and all(isinstance(end, float) for end in value):
        return " to ".join(f"{end:.4g}" for end in value)
    return ""


def main() -> None:
    """Packs, unpacks or writes a card, as the flags say."""
    values = flags.FLAGS
    if (values.to is None) == (values.card is None):
        raise app.UsageError("--pack and --unpack need --to, --card has none")
    if values.card is None:
        source, target, release = Path(values.pack or values.unpack), Path(values.to), bool(values.pack)
        print(releasing.transfer(source, target, abstract_state(source), release=release))
    else:
        target, release = Path(values.card), True
    if release:
        (target / CARD).write_text(card(target), encoding="utf-8")
        print(target / CARD)


if __name__ == "__main__":
    flags.DEFINE_string("pack", None, "directory of a run to release")
    flags.DEFINE_string("unpack", None, "released folder to go on with")
    flags.DEFINE_string("card", None, "released folder whose card is written")
    flags.DEFINE_string("to", None, "where it goes")
    flags.mark_flags_as_mutual_exclusive(["pack", "unpack", "card"], required=True)
    runtime.run_program(main, reports=(ValueError, runtime.CheckpointError))
