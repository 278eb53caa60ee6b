"""The model to fine-tune: an encoder from a directory or from scratch, and a new head."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import safetensors
import safetensors.numpy

from experiments.folnet_finetune import kinds
from experiments.folnet_finetune.config import OF_ANY_MODEL, Config
from experiments.runtime.training import run_keys
from folnet import parameters, pretrained
from folnet.settings import ModelConfig


def make(config: Config) -> Any:
    """Returns the flax module; of a checkpoint, only the settings are read.

    Raises:
        ValueError: the checkpoint's settings are missing or damaged, or do not match the config.
    """
    task = config.open_task()
    settings = _settings(config)
    if settings.absolute_position and config.tokens > settings.max_position_embeddings:
        raise ValueError(
            f"length: got {config.tokens}, expected at most {settings.max_position_embeddings}, the number "
            "of absolute positions in the checkpoint"
        )
    kind = kinds.of(task)
    return kind.head(settings.replace(**kind.settings))


def _settings(config: Config) -> ModelConfig:
    if not config.checkpoint:
        return config.model.settings()
    found, _ = pretrained.read_config(Path(config.checkpoint).expanduser())
    try:
        return found.replace(**{name: getattr(config.model, name) for name in OF_ANY_MODEL})
    except ValueError as error:
        raise ValueError(f"model.{error}, with checkpoint={config.checkpoint!r}") from error


def misfits(config: Config) -> list[str]:
    """Returns messages about the checkpoint's settings and parameter shapes, if any are missing or wrong."""
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
        what = "file not found" if isinstance(error, FileNotFoundError) else f"damaged: {error}"
        return [f"checkpoint: {path}: {what}"]
    expected = parameters.shapes(model)
    wrong = parameters.misfits(_encoder(expected), _encoder(parameters.adapted(shapes, expected)))
    if not wrong:
        return []
    more = f" and {len(wrong) - 2} more" if len(wrong) > 2 else ""
    return [f"checkpoint: {path}: does not match {pretrained.CONFIG_FILE}: {'; '.join(wrong[:2])}{more}"]


def make_init(model: Any) -> Callable[[jax.Array], Any]:
    """Returns `init(key)`, which draws random parameters for the model."""

    def init(key):
        shape = (*getattr(model, "dummy_shape", (1, 1))[:-1], 8)
        return model.init(key, jnp.zeros(shape, jnp.int32))["params"]

    return init


def begin(config: Config, model: Any) -> dict[str, Any]:
    """Returns initial parameters: the checkpoint's encoder and a head drawn from the seed.

    A head in the checkpoint is ignored.

    Raises:
        ValueError: the checkpoint does not match the model (see `misfits`).
    """
    table = safetensors.numpy.load_file(_weights(config))
    table = _encoder(parameters.adapted(table, parameters.shapes(model)))
    key, _ = jax.random.split(run_keys(config.seed)[0])  # the same key as for a run from scratch
    return parameters.filled(model, table, str(_weights(config)), key=key)


def _weights(config: Config) -> Path:
    return Path(config.checkpoint).expanduser() / pretrained.WEIGHTS_FILE


def _encoder[Value](table: dict[str, Value]) -> dict[str, Value]:
    return {name: value for name, value in table.items() if name.startswith(parameters.ENCODER)}


def apply(model: Any, params: Any, batch: Any, *, dropout: jax.Array | None = None) -> Any:
    """Returns the model's output for a batch; dropout is applied only if a key is given."""
    return model.apply(
        {"params": params},
        batch["input_ids"],
        batch["token_type_ids"],
        batch.get("attention_mask"),
        dropout is None,
        rngs=None if dropout is None else {"dropout": dropout},
    )
