"""Models in a directory, in the layout of the Hugging Face ecosystem, with their characters.

The files are config.json, model.safetensors and vocabulary.json, and for PyTorch's `transformers` `CODE_FILE`
and a tokenizer:

    model.save_pretrained("tp-small", params, vocabulary)
    model, params = TPTransformer.from_pretrained("tp-small")
    vocabulary = Vocabulary.load("tp-small")
    greedy_decode(model, params, vocabulary.encode_batch(questions), max_length=31)

The ids of padding, start and end are settings of the model, so that decoding uses them by default.
"""

import dataclasses
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
from flax import traverse_util

from logic_zoo import folders, hub
from logic_zoo.writing import write_whole
from tp_transformer.mathematics.vocabulary import Vocabulary

MODEL_TYPE = "tp_transformer"
"""`model_type` in config.json, of both architectures."""

CODE_FILE = "modeling_tp_transformer.py"
"""The model for `transformers`."""
AUTO_MAP = {
    auto: f"{CODE_FILE.removesuffix('.py')}.{cls}"
    for auto, cls in (("AutoConfig", "TPTransformerConfig"), ("AutoModelForSeq2SeqLM", "EncoderDecoder"))
}

_DTYPES = ("dtype", "param_dtype")
_MODULE = "module"
"""Key of config.json: the module that defines a class of another package."""
_FOREIGN = (
    _MODULE,
    "auto_map",
    "binds_roles",
    "transformers_version",
    "is_encoder_decoder",
    "tie_word_embeddings",
    "use_cache",
    "bos_token_id",
    "decoder_start_token_id",
    "eos_token_id",
    "pad_token_id",
)
"""Keys of config.json for `transformers`, which say nothing that our settings and architecture do not."""


class Pretrained:
    """Saving and loading, for both architectures."""

    @nn.nowrap
    def save_pretrained(
        self: Any,
        directory: str | os.PathLike[str],
        params: Mapping[str, Any],
        vocabulary: Vocabulary | None = None,
    ) -> None:
        """Writes config.json, model.safetensors and `CODE_FILE`, and a vocabulary's files if there is one.

        `AutoModelForSeq2SeqLM.from_pretrained(directory, trust_remote_code=True)` of `transformers` opens it
        in PyTorch, and `AutoTokenizer` the vocabulary. A class of another package, such as
        `GatedTransformer` of `experiments.baselines`, has no code for PyTorch; its config.json names its
        module instead.

        Args:
          directory: created if it does not exist.
          params: the model's parameters, written with their dtypes.
          vocabulary: maps characters to the model's ids; the model must have its ids of padding, start and
            end. None for a model whose symbols are not characters.

        Raises:
          ValueError: the parameters or the vocabulary do not fit this model; lists every mismatch.
        """
        # In C order, since safetensors writes memory as it lies.
        table = {name: np.asarray(array, order="C") for name, array in flatten(params).items()}
        given = {name: array.shape for name, array in table.items()}
        folders.complain("params", self, folders.misfits(shapes(self), given))
        check_vocabulary(self, vocabulary)
        if vocabulary is not None:
            vocabulary.save(directory)
            vocabulary.save_tokenizer(directory)
        weights = safetensors.numpy.save(table, metadata={"format": "pt"})  # as PyTorch names and shapes them
        kind = type(self)
        others: dict[str, Any] = {_MODULE: kind.__module__}
        if kind.__module__.startswith(f"{__package__}."):
            code = Path(__file__).parent / "pytorch" / CODE_FILE
            write_whole(Path(directory) / CODE_FILE, code.read_text(encoding="utf-8"))
            others = {"auto_map": AUTO_MAP, "binds_roles": self.binds_roles}
        folders.write(directory, MODEL_TYPE, kind.__name__, settings(self) | others, weights)

    @nn.nowrap
    def push_to_hub(
        self: Any,
        params: Mapping[str, Any],
        name: str,
        vocabulary: Vocabulary | None = None,
        *,
        message: str = "Upload a model",
        private: bool = False,
    ) -> str:
        """Uploads what `save_pretrained` writes to a hub as "user/model"; returns its address.

        `message` is that of the commit, and `private` whether a new model is. See `logic_zoo.hub`.

        Raises:
          ValueError: the parameters or the vocabulary do not fit this model, or the hub refuses.
        """
        with tempfile.TemporaryDirectory() as directory:
            self.save_pretrained(directory, params, vocabulary)
            return hub.push(directory, name, message=message, private=private)

    @classmethod
    def from_pretrained[M: nn.Module](
        cls: type[M], directory: str | os.PathLike[str], *, revision: str | None = None, **changes: Any
    ) -> tuple[M, dict[str, Any]]:
        """Loads the model in a directory and its parameters, in `param_dtype`.

        `EncoderDecoder.from_pretrained` loads either architecture, and each subclass its own.

        Args:
          directory: contains config.json and model.safetensors; or "user/model" on a hub, which is downloaded
            (see `logic_zoo.hub`).
          revision: branch, tag or commit on the hub; None for its main branch.
          **changes: fields to override, such as `dtype`.

        Raises:
          ValueError: a file is missing or damaged, with its name; the directory has another architecture, or
            one of another package that was not imported, which is named; or parameters do not fit, all
            listed.
        """
        directory = hub.directory_of(directory, revision)
        kinds = folders.kinds(cls)
        _, architecture, fields = folders.read(directory, (MODEL_TYPE,), "a TP-Transformer or Transformer")
        config, path = Path(directory) / folders.CONFIG_FILE, Path(directory) / folders.WEIGHTS_FILE
        if architecture not in kinds:
            message = f"got architecture {architecture!r}, expected {' or '.join(map(repr, kinds))}"
            if _MODULE in fields:
                message += f"; import {fields[_MODULE]} and use EncoderDecoder.from_pretrained"
            raise ValueError(f"{config}: {message}")
        fields = {name: value for name, value in fields.items() if name not in _FOREIGN}
        try:
            model: Any = _made(kinds[architecture], {**fields, **changes})
            expected = shapes(model)
        except (ValueError, TypeError) as error:
            raise ValueError(f"{config}: {error}") from error
        with folders.naming(path, "the parameters of the model", safetensors.SafetensorError):
            table = safetensors.numpy.load_file(path)
        given = {name: array.shape for name, array in table.items()}
        folders.complain(str(path), model, folders.misfits(expected, given))
        params = {name: jnp.asarray(table[name], model.param_dtype) for name in expected}
        return model, traverse_util.unflatten_dict(params, sep=".")


def flatten(params: Mapping[str, Any]) -> dict[str, Any]:
    """Flattens nested parameters to "a.b.c" -> array."""
    return traverse_util.flatten_dict(dict(params), sep=".")


def shapes(model: Any) -> dict[str, tuple[int, ...]]:
    """Returns the names and shapes of a model's parameters without computing them."""
    tokens = jax.ShapeDtypeStruct((1, 1), jnp.int32)
    variables = jax.eval_shape(model.init, jax.random.key(0), tokens, tokens)
    return {name: leaf.shape for name, leaf in flatten(variables["params"]).items()}


def settings(model: nn.Module) -> dict[str, Any]:
    """Returns a model's fields as JSON holds them."""
    fields = {name: getattr(model, name) for name in _fields(type(model))}
    dtypes = {name: fields[name] and jnp.dtype(fields[name]).name for name in _DTYPES}
    return fields | dtypes


def check_vocabulary(model: Any, vocabulary: Vocabulary | None) -> None:
    """Raises ValueError, listing every difference, unless the model has the vocabulary's size and ids."""
    if vocabulary is None:
        return
    wanted = {"vocab_size": vocabulary.size, **vocabulary.special_ids}
    lines = [
        f"{name}: got {value}, expected {getattr(model, name)}"
        for name, value in wanted.items()
        if getattr(model, name) != value
    ]
    folders.complain("vocabulary", model, lines)


def _fields(kind: type[nn.Module]) -> list[str]:
    return [field.name for field in dataclasses.fields(kind) if field.name not in ("parent", "name")]


def _made(kind: type[nn.Module], fields: dict[str, Any]) -> nn.Module:
    """Builds a module from `settings`; raises ValueError or TypeError for a field that is invalid."""
    known = _fields(kind)
    if unknown := sorted(set(fields) - set(known)):
        raise ValueError(f"fields: got {', '.join(map(repr, unknown))}, expected only {', '.join(known)}")
    dtypes = {name: fields[name] and jnp.dtype(fields[name]) for name in _DTYPES if name in fields}
    return kind(**{**fields, **dtypes})
