"""Weights that are shipped: any run as a small folder, with a card that says what it is.

    python -m experiments.weights --pack=runs/copy --to=results/llrnn/copy
    python -m experiments.weights --unpack=results/llrnn/copy --to=runs/copy
    python -m experiments.weights --card=results/llrnn/copy

The first releases a run of any experiment (the whole state in one safetensors file) and writes its card, the
second makes a workdir of it in which training goes on, the third writes the card again. From Python:
`experiments.exporting.open_model("results/llrnn/copy")`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from absl import app, flags, logging

from experiments import folnet_pretrain, kinship, llrnn, mathematics, runtime
from experiments.boxworld_engine import Impala
from experiments.exporting.models import KINDS, experiment_of, read_settings
from experiments.runtime import packing, releasing
from experiments.runtime.training import Program
from experiments.runtime.workdir import read_json

CARD = "README.md"
_STATES: dict[str, Callable[[Any], Any]] = {
    "experiments.boxworld": lambda config: Impala(config).abstract_state(),
    "experiments.folnet_pretrain": folnet_pretrain.abstract_state,
    "experiments.kinship": kinship.abstract_state,
    "experiments.llrnn": lambda config: Program(llrnn.make_training(config), "jit").abstract_state(),
    "experiments.mathematics": mathematics.abstract_state,
}
_DATA = {
    "experiments.boxworld": "None from outside: boards are drawn by `simplicial.boxworld`.",
    "experiments.folnet_pretrain": (
        "The language reference that comes with Python 3 (`pydoc_data.topics`; Python Software Foundation "
        "licence), unless `data.source` in config.json names another text; some documents are held out."
    ),
    "experiments.kinship": "None from outside: problems are drawn by `folnet.kinship`.",
    "experiments.llrnn": "None from outside: sequences are drawn by `llrnn.tasks`.",
    "experiments.mathematics": (
        "Questions drawn by the generator of the Mathematics Dataset (`mathematics-dataset` 1.0.1, Saxton et "
        "al. 2019, Apache-2.0), of the modules in config.json."
    ),
}
_LIMITS = {
    "experiments.boxworld": "A small board with one key: not the paper's environment, agent or training.",
    "experiments.folnet_pretrain": "A model of toy size on little text, to begin with; no paper's model.",
    "experiments.kinship": "Symbolic families of our own, told as chains; it knows no other relations.",
    "experiments.llrnn": "It knows its one task; beyond the lengths in the table nothing was measured.",
    "experiments.mathematics": "A toy beside the paper's 49 million parameters; it knows its modules only.",
}


def read_run(path: Path) -> tuple[str, runtime.RunConfig]:
    """The experiment and the config of a run or of a released folder.

    Raises:
        ValueError: it holds neither.
    """
    experiment = experiment_of(path, read_settings(path))
    return experiment, releasing.read_run_config(KINDS[experiment], path, experiment)


def abstract_state(path: Path) -> Any:
    """Shapes, types and shardings of the state of a run or of a released folder.

    Raises:
        ValueError: it holds neither.
    """
    experiment, config = read_run(path)
    return _STATES[experiment](config)


def card(folder: Path) -> str:
    """What a user should know of a released folder: data, licence, training, what was measured, how to load.

    Args:
        folder: as `releasing.transfer` makes it, with its summary.

    Raises:
        ValueError: it is no released run, or has no summary.
    """
    experiment, config = read_run(folder)
    if not releasing.is_released(folder):
        raise ValueError(f"{folder} has no {packing.STATE}: a card is of a released run; --pack makes one")
    try:
        summary = read_json(folder / "summary.json")
    except (OSError, ValueError) as error:
        raise ValueError(f"{folder} has no summary of a finished run: {error}") from error
    devices, versions = summary["devices"], summary["versions"]
    where = f"{devices['cpus']} CPU cores" if devices["platform"] == "cpu" else devices["kind"]
    commit = summary["commit"].partition("-")
    lines = [
        f"# {folder.name}: {kind_of(experiment, config)}",
        "",
        f"Made by `{experiment}`; the whole state, parameters and optimizer, after step {summary['step']}",
        f"(`{packing.STATE}`). Loaded by one line:",
        "",
        "```python",
        "from experiments.exporting import open_model",
        "",
        f'model = open_model("{folder.as_posix()}")  # model.function(model.params, inputs), model.inputs',
        "```",
        "",
        "| | |",
        "|---|---|",
        f"| data | {_DATA[experiment]} |",
        "| licence | Apache-2.0, as the code |",
        f"| trained | {summary['train_seconds']:.0f} s on {where}, jax {versions['jax']}, "
        f"commit {commit[0][:12]}{commit[1]}{commit[2]}, seed {config.seed} |",
        "| settings | `config.json`; the record of training is `metrics.jsonl` |",
        f"| SHA-256 of the parameters | {summary['params_sha256']} |",
        f"| what it is not | {_LIMITS[experiment]} |",
        "",
        "Measured at its end, by the same program:",
        "",
        "| | |",
        "|---|---|",
        *(f"| {name} | {told} |" for name, told in measured(summary["results"])),
    ]
    return "\n".join(lines) + "\n"


def kind_of(experiment: str, config: Any) -> str:
    """A run in a few words."""
    return {
        "experiments.boxworld": lambda: f"a {config.agent.kind} agent for a small BoxWorld",
        "experiments.folnet_pretrain": lambda: f"a pretrained {config.model.name} of toy size",
        "experiments.kinship": lambda: f"FOLNet {config.model} on kinship problems",
        "experiments.llrnn": lambda: f"the cell {config.cell.name} on the task {config.task}",
        "experiments.mathematics": lambda: f"a {config.model.name} on {', '.join(config.data.modules)}",
    }[experiment]()


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


def main(arguments: Sequence[str]) -> None:
    """The program."""
    if len(arguments) > 1:
        raise app.UsageError(f"unexpected argument {arguments[1]!r}")
    values = flags.FLAGS
    if (values.to is None) == (values.card is None):
        raise app.UsageError("--pack and --unpack need --to, --card has none")
    try:
        if values.card is None:
            source, target, release = Path(values.pack or values.unpack), Path(values.to), bool(values.pack)
            print(releasing.transfer(source, target, abstract_state(source), release=release))
        else:
            target, release = Path(values.card), True
        if release:
            (target / CARD).write_text(card(target), encoding="utf-8")
            print(target / CARD)
    except (ValueError, runtime.CheckpointError) as error:
        raise app.UsageError(str(error)) from error


if __name__ == "__main__":
    logging.set_verbosity(logging.WARNING)
    flags.DEFINE_string("pack", None, "directory of a run to release")
    flags.DEFINE_string("unpack", None, "released folder to go on with")
    flags.DEFINE_string("card", None, "released folder whose card is written")
    flags.DEFINE_string("to", None, "where it goes")
    flags.mark_flags_as_mutual_exclusive(["pack", "unpack", "card"], required=True)
    app.run(main)
