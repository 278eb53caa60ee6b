"""Opens models of kinship problems for export, as functions of named arrays."""

from pathlib import Path
from typing import Any

from experiments.exporting.interface import BATCH, LENGTH, Exportable, Input, Output, describe_source
from experiments.kinship import measures, train
from experiments.kinship.config import Config
from experiments.kinship.stories import StoryClassifier
from experiments.runtime import releasing
from folnet import kinship


def open_model(path: Path, *, step: int | None = None, seed: int = 0) -> Exportable:
    """Opens the model of a run (or of a baseline, in a subdirectory) for export."""
    path = releasing.find(path)
    config = releasing.read_run_config(Config, path)
    restored = releasing.restore(path, train.abstract_state(config), step)
    return of_kinship(config, restored.state.params, restored.step)


def of_kinship(config: Config, params: Any, step: int | None = None) -> Exportable:
    """Returns a model from problems to logits of the answer, at the length of the run's longest test."""
    model = config.make(config.model)
    if isinstance(model, StoryClassifier):
        return _of_stories(config, model, params, step)
    settings = model.config
    read = [config.reader(config.model, source)(source, range(1)) for _, source in config.data.tests()]
    longest = max(read, key=lambda arrays: arrays["input_ids"].shape[1])
    num_tokens = longest["input_ids"].shape[1]
    symbols, text = (0, settings.vocab_size - 1), (BATCH, LENGTH)
    known = {
        "input_ids": Input(text, "int32", "tokens", pad=0, range=symbols),
        "attention_mask": Input(text, "bool", "true where a token is real", default=1, pad=0),
        "token_type_ids": Input(text, "int32", "segments", pad=0, range=(0, settings.type_vocab_size - 1)),
        "relation_ids": Input(
            (*text, LENGTH, *((2,) if config.data.inverses else ())),
            "int32",
            "relations between pairs, -1 for none",
            pad=-1,
            range=(-1, settings.relation_vocab_size - 1),
        ),
        "query": Input((BATCH, 2), "int32", "tokens of the two people", range=(1, num_tokens - 1)),
    }

    return _exportable(
        config,
        model,
        params,
        step,
        inputs={name: described for name, described in known.items() if name in longest},
        lengths=(num_tokens,),
        shortest=2,
        longest=settings.max_position_embeddings if settings.absolute_position else None,
    )


def _of_stories(config: Config, model: StoryClassifier, params: Any, step: int | None) -> Exportable:
    """Returns a model from the windows of stories to logits of the answer."""
    people, reading = config.data.largest().people, config.reading
    windows = (BATCH, reading.windows, reading.window)
    tokens = (0, model.text.vocab_size - 1)
    inputs = {
        "input_ids": Input(windows, "int32", "tokens of each window, 0 for padding", range=tokens),
        "mentions": Input(windows, "int32", "person of each token, -1 for nobody", range=(-1, people - 1)),
        "names": Input((BATCH, people), "int32", "people's names, -1 for nobody", range=(-1, people - 1)),
        "query": Input((BATCH, 2), "int32", "the two people", range=(0, people - 1)),
    }
    return _exportable(config, model, params, step, inputs=inputs)


def _exportable(config: Config, model: Any, params: Any, step: int | None, **fields: Any) -> Exportable:
    def function(params, inputs):
        return {"logits": measures.logits(model, params, inputs)}

    return Exportable(
        kind=f"encoder (kinship, {config.model})",
        function=function,
        params=params,
        outputs={
            "logits": Output((BATCH, len(kinship.TARGETS)), "logits of the relations", kinship.TARGET_NAMES)
        },
        source=describe_source(params, step),
        derivable=function,
        **fields,
    )
