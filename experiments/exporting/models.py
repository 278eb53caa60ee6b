"""What goes into a trained model and what comes out: for each of the four papers, by name.

    exportable = open_model("results/boxworld/quick_simplicial")
    exportable.function(exportable.params, {"observation": boards})["logits"]

Whatever has left a `config.json` is recognised by its fields.
"""

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax

from experiments import (
    boxworld_weights,
    folnet_weights,
    llrnn,
    mathematics_measures,
    mathematics_weights,
    runtime,
)
from experiments.configs import boxworld as boxworld_configs
from experiments.configs import folnet_pretrain as folnet_configs
from experiments.configs import kinship as kinship_configs
from experiments.configs import llrnn as llrnn_configs
from experiments.configs import mathematics as mathematics_configs
from experiments.exporting.encoders import ENCODERS, of_encoder, of_pretraining
from experiments.exporting.interface import BATCH, LENGTH, Exportable, Input, Output, describe_source
from experiments.exporting.kinship import EXPERIMENT, open_kinship
from experiments.exporting.writers import WRITERS, of_writer
from experiments.runtime import releasing
from experiments.runtime.checkpoints import Restored
from experiments.runtime.training import Program
from folnet import pretrained
from folnet.pretraining.files import VOCABULARY
from folnet.tokenization import WordPieceTokenizer
from tp_transformer import greedy_decode, mathematics

ACTIONS = ("left", "up", "right", "down")
KINDS: dict[str, type[runtime.RunConfig]] = {
    "experiments.boxworld": boxworld_configs.Config,
    "experiments.mathematics": mathematics_configs.Config,
    "experiments.folnet_pretrain": folnet_configs.Config,
    "experiments.llrnn": llrnn_configs.Config,
    EXPERIMENT: kinship_configs.Config,
}
NEW_TOKENS = 32
BEST = "best"
"""Below a run of `experiments.folnet_finetune`, a directory for `from_pretrained`."""


def open_model(
    path: Path | str, *, step: int | None = None, seed: int = 0, new_tokens: int = NEW_TOKENS
) -> Exportable:
    """A trained model.

    Args:
        path: a run's directory, a released folder or a directory for `from_pretrained`; of a run that
            fine-tuned, the best model.
        step: of which checkpoint of a run; the last by default.
        seed: which of the run's seeds, for agents.
        new_tokens: how many a FOLNet that writes texts writes at most.

    Raises:
        ValueError: there is no model; the path and what was wrong.
        runtime.CheckpointError: there is no such checkpoint, or it is damaged.
    """
    path = Path(path)
    found = read_settings(path)
    if "model_type" in found:
        return of_pretrained(path, new_tokens)
    if (path / BEST / "config.json").is_file():
        return of_pretrained(path / BEST, new_tokens)
    experiment = experiment_of(path, found)
    opened = {
        "experiments.boxworld": lambda: of_agent(boxworld_weights.load(path, step=step, seed=seed), seed),
        "experiments.mathematics": lambda: of_solver(mathematics_weights.load(path, step=step)),
        "experiments.folnet_pretrain": lambda: of_pretraining(folnet_weights.load(path, step=step)),
        "experiments.llrnn": lambda: open_recurrent(path, step),
        EXPERIMENT: lambda: open_kinship(path, step),
    }[experiment]()
    source = {"experiment": experiment, "run": str(path), **opened.source, "config": found}
    return dataclasses.replace(opened, source=source)


def read_settings(path: Path) -> dict[str, Any]:
    """What is in a directory's config.json.

    Raises:
        ValueError: there is none, or it is not JSON.
    """
    try:
        found = json.loads((path / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} holds no trained model: {error}") from error
    if not isinstance(found, dict):
        raise ValueError(f"{path}/config.json is {found!r}, expected the settings of a run or of a model")
    return found


def experiment_of(path: Path, settings: Mapping[str, Any]) -> str:
    """Which experiment a run is of: the one whose config has all the fields.

    Raises:
        ValueError: none has.
    """
    for name, kind in KINDS.items():
        if set(settings) <= {field.name for field in dataclasses.fields(kind)}:
            return name
    raise ValueError(f"{path}/config.json is of no experiment here; there are {', '.join(KINDS)}")


def of_pretrained(path: Path, new_tokens: int = NEW_TOKENS) -> Exportable:
    """What `save_pretrained` wrote: a FOLNet, or a Transformer under its heads.

    Raises:
        ValueError: a file that is damaged or missing, or a class that is not exported.
    """
    _, name = pretrained.read_config(path)
    known = ENCODERS | WRITERS
    if name not in known:
        raise ValueError(f"{path} holds a {name!r}, expected one of {', '.join(known)}")
    model, params = known[name].from_pretrained(path)
    file = path / VOCABULARY
    tokenizer = WordPieceTokenizer.load(file) if file.is_file() else None
    if name in WRITERS:
        exportable = of_writer(model, params, tokenizer, new_tokens)
    else:
        exportable = of_encoder(model, params, tokenizer)
    source = {"pretrained": str(path), "class": name, **describe_source(params, None)}
    return dataclasses.replace(exportable, source=source | {"config": model.config.to_dict()})


# ---- one function a paper


def of_agent(trained: boxworld_weights.Trained, seed: int = 0) -> Exportable:
    """Boards to logits of the actions and values; `seed` is which of the run's the parameters are of."""
    shape = (trained.config.rows, trained.config.cols + 1, 3)

    def outputs(params, observation) -> dict[str, jax.Array]:
        found = trained.policy(params, observation)
        return {"logits": found.logits, "value": found.value}

    def function(params, inputs):
        return outputs(params, inputs["observation"])

    def one_by_one(params, inputs):
        # In the first block all entities of a batch are queries to the same pairs. How a row of a length that
        # is not known is cut for the backward pass cannot be told: so each board is by itself here.
        return jax.vmap(outputs, in_axes=(None, 0))(params, inputs["observation"])

    return Exportable(
        kind="agent",
        function=function,
        params=trained.params,
        inputs={
            "observation": Input((BATCH, *shape), "uint8", "the picture of the board, with the inventory")
        },
        outputs={
            "logits": Output((BATCH, 4), "of the actions", ACTIONS),
            "value": Output((BATCH,), "expected discounted return"),
        },
        source=describe_source(trained.params, trained.step, seed=trained.run.seed + seed),
        derivable=one_by_one,
    )


def of_solver(trained: mathematics_weights.Trained) -> Exportable:
    """Questions to answers, the greedy loop inside."""
    vocabulary, longest = trained.vocabulary, mathematics_measures.LONGEST

    def function(params, inputs):
        tokens = greedy_decode(
            trained.model,
            params,
            inputs["source"],
            max_length=longest,
            start=vocabulary.start,
            end=vocabulary.end,
        )
        return {"tokens": tokens}

    symbols = (0, trained.model.vocab_size - 1)
    return Exportable(
        kind="sequence to sequence",
        function=function,
        params=trained.params,
        inputs={
            "source": Input(
                (BATCH, LENGTH), "int32", "the question's symbols", pad=vocabulary.pad, range=symbols
            )
        },
        outputs={"tokens": Output((BATCH, longest + 1), "the answer's symbols, the start symbol first")},
        source=describe_source(trained.params, trained.step),
        lengths=tuple(sorted({source for source, _ in mathematics.BUCKETS})),
        text=describe_characters(vocabulary),
    )


def describe_characters(vocabulary: mathematics.Vocabulary) -> dict[str, Any]:
    """How `run_exported` reads questions and writes answers."""
    return {
        "kind": "characters",
        "input": "source",
        "output": "tokens",
        "characters": vocabulary.characters,
        **{name: getattr(vocabulary, name) for name in ("pad", "start", "end", "first")},
    }


def load_recurrent(path: Path, step: int | None = None) -> tuple[llrnn_configs.Config, Restored]:
    """The config and the state of a run of `experiments.llrnn`, or of the baseline below it."""
    config = releasing.read_run_config(llrnn_configs.Config, path, "experiments.llrnn")
    state = Program(llrnn.make_training(config), "jit")
    return config, releasing.restore(path, state.abstract_state(), step)


def open_recurrent(path: Path, step: int | None = None) -> Exportable:
    """Of a run of `experiments.llrnn`."""
    config, restored = load_recurrent(path, step)
    return of_recurrent(config, restored.state.params, restored.step)


def of_recurrent(config: llrnn_configs.Config, params: Any, step: int | None = None) -> Exportable:
    """Sequences of tokens to logits, the scan over the cell inside."""
    task = config.make_task()
    model = config.make_model(task)

    def function(params, inputs):
        return {"logits": llrnn.predict(model, params, task.encode(inputs["tokens"]))}

    return Exportable(
        kind="recurrent",
        function=function,
        params=params,
        inputs={
            "tokens": Input(
                (BATCH, LENGTH, len(task.fields)),
                "int32",
                f"the fields of each step, of {', '.join(map(str, task.fields))} values",
                range=(0, max(task.fields) - 1),
            )
        },
        outputs={"logits": Output((BATCH, LENGTH, task.num_outputs), "of the target's classes")},
        source=describe_source(params, step),
        lengths=None,
        derivable=function,
    )
