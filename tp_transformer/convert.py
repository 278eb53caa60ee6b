"""The authors' checkpoints to our parameters, and back: a table of names.

    model, params = convert.from_torch(state, num_heads=8, pad=1)

The state dict is a mapping of NumPy arrays. `experiments.runtime.torch_files` reads and writes the files,
without PyTorch and without executing what is in them.
"""

import re
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import traverse_util

from tp_transformer.layers import sinusoids
from tp_transformer.model import EncoderDecoder, TPTransformer, Transformer

POSITIONS = "embedding.pe"  # a table in their state dict, a formula here
MAX_POSITIONS = 200  # of their table
DATA_PARALLEL = "module."  # before every name, where PyTorch's DataParallel was used

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
    state_dict: Mapping[str, np.ndarray], num_heads: int, *, pad: int = 0
) -> tuple[EncoderDecoder, dict[str, Any]]:
    """The model that a state dict is of, and its parameters in float32.

    Args:
      state_dict: arrays by the authors' names, of either architecture, with or without "module." before each.
      num_heads: H, which no array's shape tells.
      pad: the number of the padding symbol, likewise.

    Raises:
      ValueError: names that lack or do not belong, shapes that do not fit.
    """
    state = {name.removeprefix(DATA_PARALLEL): np.asarray(array) for name, array in state_dict.items()}
    model = _model(state, num_heads, pad)
    tokens = jax.ShapeDtypeStruct((1, 1), jnp.int32)
    variables = jax.eval_shape(model.init, jax.random.key(0), tokens, tokens)
    shapes: dict[tuple[str, ...], Any] = traverse_util.flatten_dict(variables["params"])
    names = _names(model)
    missing, extra = sorted({*names} - {*state}), sorted({*state} - {*names, POSITIONS})
    if missing or extra:
        raise ValueError(f"state_dict lacks {missing or 'nothing'} and has {extra or 'nothing'} besides")
    params: dict[tuple[str, ...], jax.Array] = {}
    for name, (path, transposed) in names.items():
        array, want = state[name], shapes[path].shape
        if transposed and array.ndim == 2:
            array = array.T
        if array.shape != want:
            given = want[::-1] if transposed else want
            raise ValueError(f"state_dict[{name!r}] has shape {state[name].shape}, expected {given}")
        params[path] = jnp.asarray(array, jnp.float32)
    return model, traverse_util.unflatten_dict(params)


def to_torch(
    model: EncoderDecoder, params: Mapping[str, Any], *, max_positions: int = MAX_POSITIONS
) -> dict[str, np.ndarray]:
    """The inverse of `from_torch`: arrays by the authors' names, for their `load_state_dict`.

    `max_positions` are the rows of the table of positions, of which the authors' model has a fixed number.
    """
    state = {POSITIONS: np.asarray(sinusoids(max_positions, model.features))[None]}
    arrays = traverse_util.flatten_dict(params)
    for name, (path, transposed) in _names(model).items():
        array = np.asarray(arrays[path])
        state[name] = np.ascontiguousarray(array.T) if transposed else array
    return state


def _model(state: Mapping[str, np.ndarray], num_heads: int, pad: int) -> EncoderDecoder:
    """The architecture and sizes that names and shapes tell."""
    try:
        vocab_size, features = state["embedding.tok_embedding.weight"].shape
        filter_features = state["encoder.layers.0.densefilter.linear1.weight"].shape[0]
    except (KeyError, ValueError, IndexError):
        raise ValueError(
            "state_dict is neither a TP-Transformer's nor a Transformer's: it lacks a matrix "
            "'embedding.tok_embedding.weight' or 'encoder.layers.0.densefilter.linear1.weight'"
        ) from None
    layers = {int(found[1]) for name in state if (found := re.match(r"encoder\.layers\.(\d+)\.", name))}
    positions = state.get(POSITIONS)
    if positions is not None:
        want = sinusoids(positions.shape[-2] if positions.ndim > 1 else 0, features)
        # Theirs is computed in float32, angles of up to 200; and it may have been rounded to bfloat16.
        if positions.shape != (1, *want.shape) or np.max(np.abs(positions[0].astype(float) - want)) > 1e-2:
            raise ValueError(f"state_dict[{POSITIONS!r}] is not the sinusoids of equation (2)")
    return (TPTransformer if "embedding.linear.weight" in state else Transformer)(
        vocab_size=vocab_size,
        features=features,
        filter_features=filter_features,
        num_heads=num_heads,
        num_layers=len(layers),
        pad=pad,
    )


def _names(model: EncoderDecoder) -> dict[str, tuple[tuple[str, ...], bool]]:
    """The authors' name of each parameter -> our path to it, and whether the array is to be transposed."""
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
