"""Models in a directory, as the Hugging Face ecosystem has them: config.json and model.safetensors.

    model.save_pretrained("folnet-base", params)
    model, params = FOLNetForSequenceClassification.from_pretrained("folnet-base", key=jax.random.key(0))

Files are written under another name and renamed when they are whole.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import jax
import numpy as np
import safetensors
import safetensors.numpy
from flax import linen as nn

from folnet import parameters
from folnet.configuration import FOLNetConfig
from folnet.settings import ModelConfig
from folnet.transformer_configuration import TransformerConfig
from folnet.writing import write_whole

MODEL_TYPES = {kind.model_type: kind for kind in (FOLNetConfig, TransformerConfig)}
CONFIG_FILE = "config.json"
WEIGHTS_FILE = "model.safetensors"


class Pretrained:
    """What every model class has besides being a module."""

    @nn.nowrap
    def save_pretrained(self: Any, directory: str | os.PathLike[str], params: Mapping[str, Any]) -> None:
        """Writes config.json and model.safetensors.

        Args:
          directory: made if it is not there.
          params: the model's parameters, written as they are.

        Raises:
          ValueError: parameters that are not this model's, all misfits at once.
        """
        table = {name: np.asarray(array) for name, array in parameters.flatten(params).items()}
        given = {name: array.shape for name, array in table.items()}
        parameters.complain("params", self, parameters.misfits(parameters.shapes(self), given))
        described = {
            "model_type": self.config.model_type,
            "architectures": [type(self).__name__],
            **self.config.to_dict(),
        }
        # The settings last: with them the directory is a model.
        weights = safetensors.numpy.save(table, metadata={"format": "flax"})
        write_whole(Path(directory) / WEIGHTS_FILE, weights)
        write_whole(Path(directory) / CONFIG_FILE, json.dumps(described, indent=2) + "\n")

    @classmethod
    def from_pretrained(
        cls: Any, directory: str | os.PathLike[str], *, key: jax.Array | None = None, **changes: Any
    ) -> tuple[Self, dict[str, Any]]:
        """The model in a directory and its parameters.

        It need not have been saved from the same class: heads that this one has not are left out, and with a
        key heads that it has are drawn. An encoder alone is the encoder of any.

        Args:
          directory: with config.json and model.safetensors.
          key: draws the parameters of heads that are missing; None: they are an error.
          **changes: of the settings, such as `dtype` or `num_labels`.

        Raises:
          ValueError: a file that is missing or damaged, by name; parameters that do not fit, all of them at
            once.
        """
        config, architecture = read_config(directory)
        model = cls(config.replace(**changes))
        path = Path(directory) / WEIGHTS_FILE
        try:
            table = safetensors.numpy.load_file(path)
        except (OSError, safetensors.SafetensorError) as error:
            raise ValueError(f"{path}: expected parameters of a FOLNet, but {_reason(error)}") from error
        if architecture != cls.__name__:
            table = parameters.adapted(table, parameters.shapes(model))
        return model, parameters.filled(model, table, str(path), key=key)


def read_config(directory: str | os.PathLike[str]) -> tuple[ModelConfig, str]:
    """The settings in a directory, and the name of the class they were saved from.

    Raises:
      ValueError: no such file, a damaged one or one of another kind of model; the file is named.
    """
    path = Path(directory) / CONFIG_FILE
    try:
        described = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ValueError(f"{path}: expected the settings of a FOLNet, but {_reason(error)}") from error
    if not isinstance(described, dict) or described.get("model_type") not in MODEL_TYPES:
        kind = described.get("model_type") if isinstance(described, dict) else described
        raise ValueError(f"{path}: model_type is {kind!r}, expected {' or '.join(map(repr, MODEL_TYPES))}")
    fields = {name: value for name, value in described.items() if name not in ("model_type", "architectures")}
    architectures = described.get("architectures") or [""]
    try:
        return MODEL_TYPES[described["model_type"]].from_dict(fields), str(architectures[0])
    except (ValueError, TypeError, LookupError) as error:
        raise ValueError(f"{path}: {error}") from error


def _reason(error: Exception) -> str:
    return "it is not there" if isinstance(error, FileNotFoundError) else f"it is damaged: {error}"
