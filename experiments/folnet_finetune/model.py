"""The model that is fine-tuned: an encoder from a directory or from scratch, and a new head."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import safetensors
import safetensors.numpy
from flax import linen as nn

from experiments.folnet_finetune.config import OF_ANY_MODEL, Config
from experiments.runtime.training import run_keys
from folnet import (
    FOLNetForQuestionAnswering,
    FOLNetForSequenceClassification,
    parameters,
    pretrained,
    tasks,
)
from folnet.settings import ModelConfig


def make(config: Config) -> FOLNetForSequenceClassification | FOLNetForQuestionAnswering:
    """The module; of a checkpoint only its settings are read.

    Raises:
        ValueError: the checkpoint's settings are missing or damaged, or do not fit the config.
    """
    task = tasks.open_task(config.task)
    settings = _settings(config)
    if settings.absolute_position and config.tokens > settings.max_position_embeddings:
        raise ValueError(
            f"length={config.tokens} must be at most the checkpoint's {settings.max_position_embeddings} "
            "absolute positions"
        )
    if isinstance(task, tasks.SequenceTask):
        kind = "single_label_classification" if task.classes else "regression"
        settings = settings.replace(num_labels=len(task.classes) or 1, problem_type=kind)
        return FOLNetForSequenceClassification(settings)
    return FOLNetForQuestionAnswering(settings)


def _settings(config: Config) -> ModelConfig:
    if not config.checkpoint:
        return config.model.settings()
    found, _ = pretrained.read_config(Path(config.checkpoint).expanduser())
    try:
        return found.replace(**{name: getattr(config.model, name) for name in OF_ANY_MODEL})
    except ValueError as error:
        raise ValueError(f"model.{error}, since checkpoint={config.checkpoint}") from error


def misfits(config: Config) -> list[str]:
    """What is missing or wrong with the checkpoint, judging by its settings and its parameters' shapes."""
    if not config.checkpoint:
        return []
    try:
        model = make(config)
    except ValueError as error:
        return [f"checkpoint: {error}"]
    path = _weights(config)
    try:
        with safetensors.safe_open(path, framework="numpy") as file:
            shapes = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
    except (OSError, safetensors.SafetensorError) as error:
        what = "there is none" if isinstance(error, FileNotFoundError) else f"it is damaged: {error}"
        return [f"checkpoint: {path} should have the parameters of a model, but {what}"]
    expected = parameters.shapes(model)
    wrong = parameters.misfits(_encoder(expected), _encoder(parameters.adapted(shapes, expected)))
    if not wrong:
        return []
    more = f" and {len(wrong) - 2} more" if len(wrong) > 2 else ""
    return [f"checkpoint: {path} does not fit its {pretrained.CONFIG_FILE}: {'; '.join(wrong[:2])}{more}"]


def make_init(model: nn.Module) -> Callable[[jax.Array], Any]:
    """`init(key)`: random parameters."""

    def init(key):
        return model.init(key, jnp.zeros((1, 8), jnp.int32))["params"]

    return init


def begin(config: Config, model: Any) -> dict[str, Any]:
    """The checkpoint's encoder, and a head drawn from the seed in place of any that the checkpoint has.

    Raises:
        ValueError: what `misfits` would say.
    """
    table = safetensors.numpy.load_file(_weights(config))
    table = _encoder(parameters.adapted(table, parameters.shapes(model)))
    key, _ = jax.random.split(run_keys(config.seed)[0])  # as a run's own initial state
    return parameters.filled(model, table, str(_weights(config)), key=key)


def _weights(config: Config) -> Path:
    return Path(config.checkpoint).expanduser() / pretrained.WEIGHTS_FILE


def _encoder[Value](table: dict[str, Value]) -> dict[str, Value]:
    return {name: value for name, value in table.items() if name.startswith(parameters.ENCODER)}


def apply(model: Any, params: Any, batch: Any, *, dropout: jax.Array | None = None) -> Any:
    """The model's output; with a key, something is dropped."""
    return model.apply(
        {"params": params},
        batch["input_ids"],
        batch["token_type_ids"],
        batch.get("attention_mask"),
        dropout is None,
        rngs=None if dropout is None else {"dropout": dropout},
    )
