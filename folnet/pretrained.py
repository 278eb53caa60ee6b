"""Models in a directory, in the layout of the Hugging Face ecosystem: config.json and model.safetensors.

    model.save_pretrained("folnet-base", params)
    model, params = FOLNetForSequenceClassification.from_pretrained("folnet-base", key=jax.random.key(0))

Files are written under temporary names and renamed when complete.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

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
    """Saving and loading, for every model class."""

    @nn.nowrap
    def save_pretrained(self: Any, directory: str | os.PathLike[str], params: Mapping[str, Any]) -> None:
        """Writes config.json and model.safetensors.

        Args:
          directory: created if it does not exist.
          params: the model's parameters, written with their dtypes.

        Raises:
          ValueError: If the parameters do not fit this model; lists every mismatch.
        """
        table = {name: np.asarray(array) for name, array in parameters.flatten(params).items()}
        given = {name: array.shape for name, array in table.items()}
        parameters.complain("params", self, parameters.misfits(parameters.shapes(self), given))
        described = {
            "model_type": self.config.model_type,
            "architectures": [type(self).__name__],
            **self.config.to_dict(),
        }
        # The settings come last: their presence makes the directory a model.
        weights = safetensors.numpy.save(table, metadata={"format": "flax"})
        write_whole(Path(directory) / WEIGHTS_FILE, weights)
        write_whole(Path(directory) / CONFIG_FILE, json.dumps(described, indent=2) + "\n")

    @classmethod
    def from_pretrained[M: nn.Module](
        cls: type[M], directory: str | os.PathLike[str], *, key: jax.Array | None = None, **changes: Any
    ) -> tuple[M, dict[str, Any]]:
        """Loads the model in a directory and its parameters.

        The model may have been saved from another class: heads that this class lacks are left out, and with
        a key its own missing heads are initialized. Every class can load a bare encoder.

        Args:
          directory: contains config.json and model.safetensors.
          key: initializes the parameters of missing heads; None makes missing heads an error.
          **changes: settings to override, such as `dtype` or `num_labels`.

        Raises:
          ValueError: If a file is missing or damaged, with its name; or if parameters do not fit, all listed.
        """
        config, architecture = read_config(directory)
        make: Any = cls  # `nn.Module` itself takes no settings
        model = make(config.replace(**changes))
        path = Path(directory) / WEIGHTS_FILE
        try:
            table = safetensors.numpy.load_file(path)
        except (OSError, safetensors.SafetensorError) as error:
            raise ValueError(f"{path}: {_reason(error)}, expected the parameters of a FOLNet") from error
        if architecture != cls.__name__:
            table = parameters.adapted(table, parameters.shapes(model))
        return model, parameters.filled(model, table, str(path), key=key)


def read_config(directory: str | os.PathLike[str]) -> tuple[ModelConfig, str]:
    """Reads the settings in a directory, and the name of the class they were saved from.

    Raises:
      ValueError: If the file is missing, damaged or of another kind of model; names the file.
    """
    path = Path(directory) / CONFIG_FILE
    try:
        described = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ValueError(f"{path}: {_reason(error)}, expected the settings of a FOLNet") from error
    if not isinstance(described, dict) or described.get("model_type") not in MODEL_TYPES:
        kind = described.get("model_type") if isinstance(described, dict) else described
        expected = " or ".join(map(repr, MODEL_TYPES))
        raise ValueError(f"{path}: got model_type {kind!r}, expected {expected}")
    fields = {name: value for name, value in described.items() if name not in ("model_type", "architectures")}
    architectures = described.get("architectures") or [""]
    try:
        return MODEL_TYPES[described["model_type"]].from_dict(fields), str(architectures[0])
    except (ValueError, TypeError, LookupError) as error:
        raise ValueError(f"{path}: {error}") from error


def _reason(error: Exception) -> str:
    return "got no such file" if isinstance(error, FileNotFoundError) else f"got a damaged file ({error})"
