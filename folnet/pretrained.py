"""FOLNets in a directory, in the layout of the Hugging Face ecosystem: config.json and model.safetensors.

    model.save_pretrained("folnet-base", params)
    model, params = FOLNetForSequenceClassification.from_pretrained("folnet-base", key=jax.random.key(0))

Directories of encoders and language models also open in PyTorch's `transformers`, by `CODE_FILE` next to the
parameters. Files are written under temporary names and renamed when complete.
"""

import dataclasses
import difflib
import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import safetensors
import safetensors.numpy
from flax import linen as nn

from folnet import parameters
from folnet.configuration import FOLNetConfig
from folnet.settings import ModelConfig
from folnet.transformer_configuration import TransformerConfig
from logic_zoo import folders, hub
from logic_zoo.folders import CONFIG_FILE, WEIGHTS_FILE
from logic_zoo.writing import write_whole

MODEL_TYPES = {kind.model_type: kind for kind in (FOLNetConfig, TransformerConfig)}
_NAMES, _NUMBERS = "id2label", "label2id"
CODE_FILE = "modeling_folnet.py"
AUTO_MAP = {
    auto: f"{CODE_FILE.removesuffix('.py')}.{cls}"
    for auto, cls in (
        ("AutoConfig", "FOLNetConfig"),
        ("AutoModel", "FOLNet"),
        ("AutoModelForPreTraining", "FOLNetForPreTraining"),
        ("AutoModelForMaskedLM", "FOLNetForMaskedLM"),
        ("AutoModelForCausalLM", "FOLNetForCausalLM"),
        ("AutoModelForSeq2SeqLM", "FOLNetForConditionalGeneration"),
        ("AutoModelForSequenceClassification", "FOLNetForSequenceClassification"),
        ("AutoModelForTokenClassification", "FOLNetForTokenClassification"),
        ("AutoModelForMultipleChoice", "FOLNetForMultipleChoice"),
        ("AutoModelForQuestionAnswering", "FOLNetForQuestionAnswering"),
    )
}
"""Where `transformers` finds its classes: those of `CODE_FILE`, which have the names of ours."""


class Pretrained:
    """Saving and loading, for every model class."""

    @nn.nowrap
    def save_pretrained(self: Any, directory: str | os.PathLike[str], params: Mapping[str, Any]) -> None:
        """Writes config.json and model.safetensors, and with a PyTorch side `CODE_FILE`.

        With the latter, `AutoModel.from_pretrained(directory, trust_remote_code=True)` of `transformers` and
        its classes for the heads open the directory in PyTorch.

        Args:
          directory: created if it does not exist.
          params: the model's parameters, written with their dtypes.

        Raises:
          ValueError: If the parameters do not fit this model; lists every mismatch.
        """
        # In C order, since safetensors writes memory as it lies.
        table = {name: np.asarray(array, order="C") for name, array in parameters.flatten(params).items()}
        given = {name: array.shape for name, array in table.items()}
        parameters.complain("params", self, parameters.misfits(parameters.shapes(self), given))
        weights = safetensors.numpy.save(table, metadata={"format": "pt"})  # as PyTorch names and shapes them
        kind, cls, settings = self.config.model_type, type(self).__name__, _described(self.config)
        if kind == FOLNetConfig.model_type and any(name.endswith(f".{cls}") for name in AUTO_MAP.values()):
            code = Path(__file__).parent / "pytorch" / CODE_FILE
            write_whole(Path(directory) / CODE_FILE, code.read_text(encoding="utf-8"))
            settings["auto_map"] = AUTO_MAP
        folders.write(directory, kind, cls, settings, weights)

    @nn.nowrap
    def push_to_hub(
        self: Any,
        params: Mapping[str, Any],
        name: str,
        *,
        tokenizer: Any = None,
        message: str = "Upload a FOLNet",
        private: bool = False,
    ) -> str:
        """Uploads what `save_pretrained` writes, and a tokenizer's files, to a hub; see `logic_zoo.hub`.

        Args:
          params: the model's parameters.
          name: "user/model", created if it does not exist.
          tokenizer: has a method `save_pretrained(directory)`; None for none.
          message: of the commit.
          private: whether a new model is private.

        Returns:
          The address of the model.

        Raises:
          ValueError: If the parameters do not fit this model, or the hub refuses.
        """
        with tempfile.TemporaryDirectory() as directory:
            self.save_pretrained(directory, params)
            if tokenizer is not None:
                tokenizer.save_pretrained(directory)
            return hub.push(directory, name, message=message, private=private)

    @classmethod
    def from_pretrained[M: nn.Module](
        cls: type[M],
        directory: str | os.PathLike[str],
        *,
        key: jax.Array | None = None,
        revision: str | None = None,
        **changes: Any,
    ) -> tuple[M, dict[str, Any]]:
        """Loads the model in a directory and its parameters.

        The model may have been saved from another class: heads that this class lacks are left out, and with
        a key its own missing heads are initialized. Every class can load a bare encoder.

        Args:
          directory: contains config.json and model.safetensors; or "user/model" on a hub, which is downloaded
            (see `logic_zoo.hub`).
          key: initializes the parameters of missing heads; None makes missing heads an error.
          revision: branch, tag or commit on the hub; None for its main branch.
          **changes: settings to override, such as `dtype` or `num_labels`.

        Raises:
          ValueError: If a file is missing or damaged, with its name; or if parameters do not fit, all listed.
        """
        directory = hub.directory_of(directory, revision)
        config, architecture = read_config(directory)
        make: Any = cls  # `nn.Module` itself takes no settings
        model = make(config.replace(**changes))
        path = Path(directory) / WEIGHTS_FILE
        with folders.naming(path, "the parameters of a FOLNet", safetensors.SafetensorError):
            table = safetensors.numpy.load_file(path)
        if architecture != cls.__name__:
            table = parameters.adapted(table, parameters.shapes(model))
            # Several classes have a head of this name, each for another purpose.
            if architecture and architecture not in folders.family(cls):
                table = {name: array for name, array in table.items() if not name.startswith("classifier.")}
        return model, parameters.filled(model, table, str(path), key=key)

    @nn.nowrap
    def resize_token_embeddings(
        self: Any, params: Mapping[str, Any], vocab_size: int, *, key: jax.Array | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Returns the model with another number of words, and its parameters.

        Args:
          params: the model's parameters; words with an id below both numbers keep theirs.
          vocab_size: the new V.
          key: initializes the parameters of additional words.

        Raises:
          ValueError: If there are additional words and no key, or the number is not at least 1.
        """
        more = vocab_size - self.config.vocab_size
        model = self.clone(config=self.config.replace(vocab_size=vocab_size))
        if more > 0 and key is None:
            raise ValueError(f"key: got None, expected a key that initializes {more} more words")
        table, expected = parameters.flatten(params), parameters.shapes(model)
        changed = [name for name, shape in expected.items() if table[name].shape != shape]  # [V, ...]
        drawn = {} if key is None else parameters.draw(model, key, changed)
        for name in changed:
            new = [drawn[name][-more:]] if more > 0 else []
            table[name] = jnp.concatenate([table[name][:vocab_size], *new])
        return model, parameters.nest(table)


def read_config(directory: str | os.PathLike[str]) -> tuple[ModelConfig, str]:
    """Reads the settings in a directory, and the name of the class they were saved from.

    Raises:
      ValueError: If the file is missing, damaged or of another kind of model; names the file.
    """
    kind, architecture, fields = folders.read(directory, MODEL_TYPES, "a FOLNet")
    try:
        return _settings(MODEL_TYPES[kind], fields), architecture
    except (ValueError, TypeError, LookupError) as error:
        raise ValueError(f"{Path(directory) / CONFIG_FILE}: {error}") from error


def _described(config: ModelConfig) -> dict[str, Any]:
    """Returns settings as config.json has them: names of labels by number, and keys of other programs."""
    fields = config.to_dict()
    labels, foreign = fields.pop("labels"), json.loads(fields.pop("foreign") or "{}")
    if labels:
        fields[_NAMES] = {str(number): name for number, name in enumerate(labels)}
        fields[_NUMBERS] = {name: number for number, name in enumerate(labels)}
    return {**foreign, **fields}


def _settings[Config: ModelConfig](kind: type[Config], described: Mapping[str, Any]) -> Config:
    """Returns the settings in config.json; keys that no field is similar to are kept as `foreign`."""
    own = {field.name for field in dataclasses.fields(kind)} - {"labels", "foreign"}
    fields = {name: value for name, value in described.items() if name in own}
    others = {name: value for name, value in described.items() if name not in own | {_NAMES, _NUMBERS}}
    if others.get("auto_map") == AUTO_MAP:
        del others["auto_map"]
    for name in others:
        if near := difflib.get_close_matches(name, own, 1, cutoff=0.85):
            raise ValueError(f"fields: got {name!r}, expected {near[0]!r}")
    if names := described.get(_NAMES):
        labels = _labels(names)
        # The names that `transformers` gives to labels without any.
        unnamed = tuple(f"LABEL_{number}" for number in range(len(labels)))
        fields["labels"] = () if labels == unnamed else labels
        fields.setdefault("num_labels", len(names))
    if others:
        fields["foreign"] = json.dumps(others, sort_keys=True)
    return kind.from_dict(fields)


def _labels(names: Any) -> tuple[str, ...]:
    """Returns the names in their order; raises ValueError unless they are numbered from 0."""
    numbers = [str(number) for number in range(len(names))]
    if not isinstance(names, dict) or set(names) != set(numbers):
        raise ValueError(f"{_NAMES}: got {names!r}, expected a name for each number from 0")
    return tuple(names[number] for number in numbers)
