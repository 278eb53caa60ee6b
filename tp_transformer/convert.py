"""Conversion of the authors' checkpoints to this package's parameters and back, as a table of names.

    symbols = Vocabulary.released()  # ids that are inferred, see `mathematics.vocabulary.INFERRED`
    model, params = convert.from_torch(state, num_heads=8, **symbols.special_ids)
    model.save_pretrained("tp-transformer", params, symbols)

A state dict is a mapping of names to NumPy arrays. `experiments.runtime.torch_files` reads and writes the
files without PyTorch and without executing their contents; `experiments.mathematics.convert` is the program.
"""

import re
from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np
from flax import traverse_util
from jaxtyping import Shaped

from logic_zoo import folders
from tp_transformer import pretrained
from tp_transformer.layers import sinusoids
from tp_transformer.model import EncoderDecoder, TPTransformer, Transformer

POSITIONS = "embedding.pe"  # stored as a table in the authors' state dict, computed by a formula here
MAX_POSITIONS = 200  # rows of the authors' table
DATA_PARALLEL = "module."  # prefix of every name saved from PyTorch's DataParallel

TP_ATTENTION = {"query": "W_q", "key": "W_k", "value": "W_v", "role": "W_r", "output": "W_o"}
ATTENTION = {"query": "w_q", "key": "w_k", "value": "w_v", "output": "linear"}
FEED_FORWARD = {"hidden": "linear1", "output": "linear2"}
ENCODER = {
    "attention": "MHA",
    "feed_forward": "densefilter",
    "attention_norm": "layernorm1",
    "feed_forward_norm": "layernorm2",
    "output_norm": "layernorm3",
}
DECODER = {
    "self_attention": "selfAttn",
    "cross_attention": "encAttn",
    "feed_forward": "densefilter",
    "self_attention_norm": "layernorm1",
    "cross_attention_norm": "layernorm2",
    "feed_forward_norm": "layernorm3",
    "output_norm": "layernorm4",
}


def from_torch(
    state_dict: Mapping[str, Shaped[np.ndarray, "..."]],
    num_heads: int,
    *,
    pad: int = 0,
    start: int | None = None,
    end: int | None = None,
) -> tuple[EncoderDecoder, dict[str, Any]]:
    """Returns the model described by a state dict, and its parameters in float32.

    Args:
      state_dict: arrays under the authors' names, of either architecture, with or without the prefix
        "module.".
      num_heads: H, which cannot be inferred from shapes.
      pad: id of the padding symbol, which cannot be inferred either; nor can
      start: id of the start symbol, for decoding, and
      end: id of the end symbol.

    Raises:
      ValueError: names are missing or unexpected, or arrays have the wrong shape; lists all of them.
    """
    state = {name.removeprefix(DATA_PARALLEL): np.asarray(array) for name, array in state_dict.items()}
    model = _model(state, num_heads, {"pad": pad, "start": start, "end": end})
    expected, names = pretrained.shapes(model), _names(model)
    wanted = {name: expected[ours][:: -1 if turned else 1] for name, (ours, turned) in names.items()}
    given = {name: array.shape for name, array in state.items() if name != POSITIONS}
    lines = folders.misfits(wanted, given) + _wrong_positions(state.get(POSITIONS), model.features)
    folders.complain("state_dict", model, lines)
    params = {
        ours: jnp.asarray(state[name].T if turned else state[name], jnp.float32)
        for name, (ours, turned) in names.items()
    }
    return model, traverse_util.unflatten_dict(params, sep=".")


def to_torch(
    model: EncoderDecoder, params: Mapping[str, Any], *, max_positions: int = MAX_POSITIONS
) -> dict[str, Shaped[np.ndarray, "..."]]:
    """Inverts `from_torch`: returns arrays under the authors' names, for their `load_state_dict`.

    `max_positions` is the number of rows of the table of positions, which is fixed in the authors' model.
    """
    state = {POSITIONS: np.asarray(sinusoids(max_positions, model.features))[None]}
    arrays = pretrained.flatten(params)
    for name, (ours, transposed) in _names(model).items():
        array = np.asarray(arrays[ours])
        state[name] = np.ascontiguousarray(array.T) if transposed else array
    return state


def _model(state: Mapping[str, np.ndarray], num_heads: int, symbols: Mapping[str, Any]) -> EncoderDecoder:
    """Infers architecture and sizes from names and shapes."""
    try:
        vocab_size, features = state["embedding.tok_embedding.weight"].shape
        filter_features = state["encoder.layers.0.densefilter.linear1.weight"].shape[0]
    except (KeyError, ValueError, IndexError):
        raise ValueError(
            "state_dict: got no matrix 'embedding.tok_embedding.weight' or "
            "'encoder.layers.0.densefilter.linear1.weight', expected those of a TP-Transformer or Transformer"
        ) from None
    layers = {int(found[1]) for name in state if (found := re.match(r"encoder\.layers\.(\d+)\.", name))}
    return (TPTransformer if "embedding.linear.weight" in state else Transformer)(
        vocab_size=vocab_size,
        features=features,
        filter_features=filter_features,
        num_heads=num_heads,
        num_layers=len(layers),
        **symbols,
    )


def _wrong_positions(table: np.ndarray | None, features: int) -> list[str]:
    """Returns a message if the authors' table of positions, which may be absent, is not that of (2)."""
    if table is None:
        return []
    want = sinusoids(table.shape[1] if table.ndim == 3 else 0, features)
    # The authors compute angles of up to 200 in float32, and the table may have been rounded to bfloat16.
    if table.shape == (1, *want.shape) and np.max(np.abs(table[0] - want)) <= 1e-2:
        return []
    return [f"{POSITIONS}: got another table of shape {table.shape}, expected the sinusoids of (2)"]


def _names(model: EncoderDecoder) -> dict[str, tuple[str, bool]]:
    """Maps the authors' names to names of our parameters and whether the array must be transposed.

    Raises ValueError for a model that the authors do not have.
    """
    if type(model) not in (TPTransformer, Transformer):
        raise ValueError(f"model: got a {type(model).__name__}, expected a TPTransformer or a Transformer")
    attention = TP_ATTENTION if model.binds_roles else ATTENTION
    names = {"embedding.tok_embedding.weight": ("embedding.tokens", False)}
    if model.binds_roles:
        names |= _affine("embedding.linear", "embedding.role")
    for stack, parts in (("encoder", ENCODER), ("decoder", DECODER)):
        for i in range(model.num_layers):
            for ours, theirs in parts.items():
                name, path = f"{stack}.layers.{i}.{theirs}", f"{stack}_{i}.{ours}"
                if ours.endswith("norm"):
                    names |= {f"{name}.weight": (f"{path}.scale", False)}
                    names |= {f"{name}.bias": (f"{path}.bias", False)}
                    continue
                for map_, theirs_map in (FEED_FORWARD if ours == "feed_forward" else attention).items():
                    names |= _affine(f"{name}.{theirs_map}", f"{path}.{map_}")
    return names


def _affine(name: str, path: str) -> dict[str, tuple[str, bool]]:
    return {f"{name}.weight": (f"{path}.kernel", True), f"{name}.bias": (f"{path}.bias", False)}
