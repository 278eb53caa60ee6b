"""Models of kinship problems as functions of named arrays: a graph as relations of pairs, or written out."""

from pathlib import Path
from typing import Any

from experiments.exporting.interface import BATCH, LENGTH, Exportable, Input, Output, describe_source
from experiments.kinship import measures
from experiments.kinship import train as experiment
from experiments.kinship.config import Config
from experiments.runtime import releasing
from folnet import kinship


def open_model(path: Path, *, step: int | None = None, seed: int = 0) -> Exportable:
    """Opens the model of a run, or of a baseline in the directory below it, for export."""
    config = releasing.read_run_config(Config, path)
    restored = releasing.restore(path, experiment.abstract_state(config), step)
    return of_kinship(config, restored.state.params, restored.step)


def of_kinship(config: Config, params: Any, step: int | None = None) -> Exportable:
    """Problems to logits of the relation asked for; as long as the longest of the run's tests."""
    model = config.make(config.model)
    settings = model.config
    read = [config.reader(config.model, source)(source, range(1)) for _, source in config.data.tests()]
    longest = max(read, key=lambda arrays: arrays["input_ids"].shape[1])
    inputs = {
        "input_ids": Input((BATCH, LENGTH), "int32", "tokens", pad=0, range=(0, settings.vocab_size - 1)),
        "attention_mask": Input((BATCH, LENGTH), "bool", "true where a token is real", default=1, pad=0),
    }
    if "token_type_ids" in longest:
        inputs["token_type_ids"] = Input(
            (BATCH, LENGTH), "int32", "segments", pad=0, range=(0, settings.type_vocab_size - 1)
        )
    if "relation_ids" in longest:
        inputs["relation_ids"] = Input(
            (BATCH, LENGTH, LENGTH, *longest["relation_ids"].shape[3:]),
            "int32",
            "relations of pairs, -1 for none",
            pad=-1,
            range=(-1, settings.relation_vocab_size - 1),
        )

    def function(params, inputs):
        return {"logits": measures.logits(model, params, inputs)}

    return Exportable(
        kind=f"encoder (kinship, {config.model})",
        function=function,
        params=params,
        inputs=inputs,
        outputs={"logits": Output((BATCH, len(kinship.TARGETS)), "of the relations", kinship.TARGET_NAMES)},
        source=describe_source(params, step),
        lengths=(longest["input_ids"].shape[1],),
        shortest=2,
        longest=settings.max_position_embeddings if settings.absolute_position else None,
        derivable=function,
    )
