"""FOLNets in a directory, in the layout of the Hugging Face ecosystem: config.json and model.safetensors.

    model.save_pretrained("folnet-base", params)
    model, params = FOLNetForSequenceClassification.from_pretrained("folnet-base", key=jax.random.key(0))

Files are written under temporary names and renamed when complete.
"""

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
from logic_zoo import folders
from logic_zoo.folders import CONFIG_FILE, WEIGHTS_FILE

MODEL_TYPES = {kind.model_type: kind for kind in (FOLNetConfig, TransformerConfig)}


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
        weights = safetensors.numpy.save(table, metadata={"format": "flax"})
        folders.write(directory, self.config.model_type, type(self).__name__, self.config.to_dict(), weights)

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
        with folders.naming(path, "the parameters of a FOLNet", safetensors.SafetensorError):
            table = safetensors.numpy.load_file(path)
        if architecture != cls.__name__:
            table = parameters.adapted(table, parameters.shapes(model))
        return model, parameters.filled(model, table, str(path), key=key)


def read_config(directory: str | os.PathLike[str]) -> tuple[ModelConfig, str]:
    """Reads the settings in a directory, and the name of the class they were saved from.

    Raises:
      ValueError: If the file is missing, damaged or of another kind of model; names the file.
    """
    kind, architecture, fields = folders.read(directory, MODEL_TYPES, "a FOLNet")
    try:
        return MODEL_TYPES[kind].from_dict(fields), architecture
    except (ValueError, TypeError, LookupError) as error:
        raise ValueError(f"{Path(directory) / CONFIG_FILE}: {error}") from error
