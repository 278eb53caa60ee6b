"""Conversion of the authors' checkpoints to this package's parameters and back, as a table of names.

    model, params = convert.from_torch(state, num_heads=8, pad=1)

A state dict is a mapping of names to NumPy arrays. `experiments.runtime.torch_files` reads and writes the
files without PyTorch and without executing their contents.
"""

import re
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import traverse_util
from jaxtyping import Shaped

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
    state_dict: Mapping[str, Shaped[np.ndarray, "..."]], num_heads: int, *, pad: int = 0
) -> tuple[EncoderDecoder, dict[str, Any]]:
    """Returns the model described by a state dict, and its parameters in float32.

    Args:
      state_dict: arrays under the authors' names, of either architecture, with or without the prefix
        "module.".
      num_heads: H, which cannot be inferred from shapes.
      pad: id of the padding symbol, which cannot be inferred either.

    Raises:
      ValueError: names are missing or unexpected, or an array has the wrong shape.
    """
    state = {name.removeprefix(DATA_PARALLEL): np.asarray(array) for name, array in state_dict.items()}
    model = _model(state, num_heads, pad)
    tokens = jax.ShapeDtypeStruct((1, 1), jnp.int32)
    variables = jax.eval_shape(model.init, jax.random.key(0), tokens, tokens)
    shapes: dict[tuple[str, ...], Any] = traverse_util.flatten_dict(variables["params"])
    names = _names(model)
    missing, extra = sorted({*names} - {*state}), sorted({*state} - {*names, POSITIONS})
    if missing or extra:
        problems = {"lacks keys": missing, "has unexpected keys": extra}
        raise ValueError(
            "state_dict: " + ", ".join(f"{what} {keys}" for what, keys in problems.items() if keys)
        )
    params: dict[tuple[str, ...], jax.Array] = {}
    for name, (path, transposed) in names.items():
        array, want = state[name], shapes[path].shape
        if transposed and array.ndim == 2:
            array = array.T
        if array.shape != want:
            expected = want[::-1] if transposed else want
            raise ValueError(f"state_dict[{name!r}]: got shape {state[name].shape}, expected {expected}")
        params[path] = jnp.asarray(array, jnp.float32)
    return model, traverse_util.unflatten_dict(params)


def to_torch(
    model: EncoderDecoder, params: Mapping[str, Any], *, max_positions: int = MAX_POSITIONS
) -> dict[str, Shaped[np.ndarray, "..."]]:
    """Inverts `from_torch`: returns arrays under the authors' names, for their `load_state_dict`.

    `max_positions` is the number of rows of the table of positions, which is fixed in the authors' model.
    """
    state = {POSITIONS: np.asarray(sinusoids(max_positions, model.features))[None]}
    arrays = traverse_util.flatten_dict(params)
    for name, (path, transposed) in _names(model).items():
        array = np.asarray(arrays[path])
        state[name] = np.ascontiguousarray(array.T) if transposed else array
    return state


def _model(state: Mapping[str, np.ndarray], num_heads: int, pad: int) -> EncoderDecoder:
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
    positions = state.get(POSITIONS)
    if positions is not None:
        want = sinusoids(positions.shape[1] if positions.ndim == 3 else 0, features)
        # The authors compute angles of up to 200 in float32, and the table may have been rounded to bfloat16.
        if positions.shape != (1, *want.shape) or np.max(np.abs(positions[0].astype(float) - want)) > 1e-2:
            raise ValueError(f"state_dict[{POSITIONS!r}]: got another table, expected the sinusoids of (2)")
    return (TPTransformer if "embedding.linear.weight" in state else Transformer)(
        vocab_size=vocab_size,
        features=features,
        filter_features=filter_features,
        num_heads=num_heads,
        num_layers=len(layers),
        pad=pad,
    )


def _names(model: EncoderDecoder) -> dict[str, tuple[tuple[str, ...], bool]]:
    """Maps the authors' names to paths of our parameters and whether the array must be transposed."""
    attention = TP_ATTENTION if model.binds_roles else ATTENTION
    names: dict[str, tuple[tuple[str, ...], bool]] = {
        "embedding.tok_embedding.weight": (("embedding", "tokens"), False)
    }
    if model.binds_roles:
        names |= _affine("embedding.linear", ("embedding", "role"))
    for stack, parts in (("encoder", ENCODER), ("decoder", DECODER)):
        for i in range(model.num_layers):
            for ours, theirs in parts.items():
                name, path = f"{stack}.layers.{i}.{theirs}", (f"{stack}_{i}", ours)
                if ours.endswith("norm"):
                    names |= {
                        f"{name}.weight": ((*path, "scale"), False),
                        f"{name}.bias": ((*path, "bias"), False),
                    }
                    continue
                for map_, theirs_map in (FEED_FORWARD if ours == "feed_forward" else attention).items():
                    names |= _affine(f"{name}.{theirs_map}", (*path, map_))
    return names


def _affine(name: str, path: tuple[str, ...]) -> dict[str, tuple[tuple[str, ...], bool]]:
    return {f"{name}.weight": ((*path, "kernel"), True), f"{name}.bias": ((*path, "bias"), False)}
