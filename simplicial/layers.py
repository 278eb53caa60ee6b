"""Layers for sequence models after Roy et al. (2025), "Fast and Simplex", arXiv:2507.02754.

`TrilinearAttention` attends to pairs of earlier positions, `RotaryAttention` to single ones (Vaswani et al.
2017, with the rotary positions of Su et al. 2021). `DecoderBlock` is a pre-LayerNorm Transformer block around
either, and `SimplicialDecoder` is a language model whose every fourth layer is 2-simplicial, as in Section 6
of the paper. All of them decode with a cache: with `decode=True`, initialise with inputs of the greatest
length, then call with a prompt and after that with one position at a time, as with flax's
`MultiHeadDotProductAttention`:

    cache = model.init(key, jnp.zeros((batch, max_length), int))["cache"]
    logits, state = model.apply({"params": params, "cache": cache}, prompt, mutable=["cache"])
    logits, state = model.apply({"params": params, **state}, token, mutable=["cache"])  # token [B, 1]

Axis letters: B batch (any number of leading axes), N positions (i of a query; j and k of its two keys), V
features of a position, H query heads, G groups (heads of keys and values), R = H / G query heads of a group,
D features of a head, C = D / 3 pieces of three coordinates, W positions that a cache keeps, A symbols of the
vocabulary.
"""

import math
from typing import Literal

import jax
import jax.numpy as jnp
from flax import linen as nn
from flax.typing import Dtype
from jaxtyping import Array, Bool, Float, Int, Integer

from kernels import MASKED, checks, masked_softmax, trilinear_attention
from kernels.arrays import einsum
from kernels.normalization import LayerNorm
from simplicial.attention import HeadProjections, as_rows, check_entities, joined_heads
from simplicial.blocks import Dense, FeedForward
from simplicial.checks import whole_number
from simplicial.decoding import DecodingCache

ROTARY_BASE = 10_000.0
"""The wavelength of the slowest rotation is 2 pi times this many positions (Su et al. 2021, equation 15)."""


def rotate(
    x: Float[Array, "*B N H D"], positions: Int[Array, "N"], period: Literal[2, 3] = 2
) -> Float[Array, "*B N H D"]:
    """Rotary position embedding: turns each piece of `period` coordinates by an angle that grows with i.

    Piece c of C turns by the angle i * 10000^(-c/C) in the plane of its first two coordinates. The rotations
    of a piece have one axis in common, so that they commute: inner products of pieces of two (Su et al. 2021,
    equation 34) and determinants of pieces of three (Roy et al. 2025, Section 5) then depend only on the
    distances of their positions. A trilinear sum has no such invariance. Angles are float32 at least.
    """
    wide = jnp.promote_types(x.dtype, jnp.float32)
    pieces = x.astype(wide).reshape(*x.shape[:-1], x.shape[-1] // period, period)
    count = pieces.shape[-2]
    angles = jnp.outer(positions.astype(wide), ROTARY_BASE ** (-jnp.arange(count, dtype=wide) / count))
    angles = angles.reshape(*(1,) * (x.ndim - 3), len(positions), 1, count)
    cos, sin = jnp.cos(angles), jnp.sin(angles)
    first, second = pieces[..., 0], pieces[..., 1]
    turned = [first * cos - second * sin, second * cos + first * sin, *jnp.moveaxis(pieces[..., 2:], -1, 0)]
    return jnp.stack(turned, axis=-1).reshape(x.shape).astype(x.dtype)


def determinant_factors(
    query: Float[Array, "*B N H D"], key1: Float[Array, "*B W1 G D"], key2: Float[Array, "*B W2 G D"]
) -> tuple[Float[Array, "*B N H 2*D"], Float[Array, "*B W1 G 2*D"], Float[Array, "*B W2 G 2*D"]]:
    """Returns vectors whose trilinear sum is the sum of the determinants of pieces of three coordinates.

    By Sarrus' rule, det[a, b, c] = sum_x a_x b_(x+1) c_(x+2) - sum_x a_x b_(x+2) c_(x+1), with indices modulo
    3: two trilinear sums over D coordinates each, or one over 2 D.
    """

    def turned(x: Array, by: int) -> Array:
        pieces = x.reshape(*x.shape[:-1], -1, 3)
        return jnp.roll(pieces, -by, axis=-1).reshape(x.shape)

    return (
        jnp.concatenate([query, -query], axis=-1),
        jnp.concatenate([turned(key1, 1), turned(key1, 2)], axis=-1),
        jnp.concatenate([turned(key2, 2), turned(key2, 1)], axis=-1),
    )


def attend_from_one(
    query: Float[Array, "*B 1 H D"],
    key1: Float[Array, "*B W1 G D"],
    key2: Float[Array, "*B W2 G D"],
    value1: Float[Array, "*B W1 G E"],
    value2: Float[Array, "*B W2 G E"],
    seen1: Bool[Array, "W1"],
    seen2: Bool[Array, "W2"],
    scale: float,
) -> Float[Array, "*B 1 H E"]:
    """Computes `kernels.trilinear_attention` of one query, with the keys that it sees in any order.

    It holds the W1 W2 logits of each head. Sums are float32 at least.
    """
    if key1.shape[-3] > key2.shape[-3]:  # the smaller window meets the query and the values one by one
        key1, key2, value1, value2, seen1, seen2 = key2, key1, value2, value1, seen2, seen1
    dtype, wide = value1.dtype, jnp.promote_types(query.dtype, jnp.float32)
    query, key1, key2, value1, value2 = (x.astype(wide) for x in (query, key1, key2, value1, value2))
    heads, groups = query.shape[-2], key1.shape[-2]
    query = query.reshape(*query.shape[:-3], groups, heads // groups, query.shape[-1])
    left = einsum("...grd,...jgd->...grjd", scale * query, key1)
    logits = einsum("...grjd,...kgd->...grjk", left, key2)
    logits = jnp.where(
        (seen1[:, None] & seen2[None]).reshape((1,) * (logits.ndim - 2) + (-1, len(seen2))), logits, MASKED
    )
    weights = jax.nn.softmax(logits, axis=(-2, -1))
    second = einsum("...grjk,...kge->...grje", weights, value2)
    out = einsum("...grje,...jge->...gre", second, value1)
    return out.reshape(*out.shape[:-3], 1, heads, out.shape[-1]).astype(dtype)


class TrilinearAttention(nn.Module):
    """Attention of every position to pairs of positions: Roy et al. (2025), Sections 4 to 6.

    out_i = sum_jk softmax_jk(scale * logit(q_i, k1_j, k2_k)) (v1_j * v2_k), heads concatenated, followed by a
    linear map. The logit is a trilinear sum or a sum of determinants.

    With the signed logit the kernel multiplies vectors of 2 D coordinates. Hand-written kernels have at most
    128, so that they serve heads of up to 63 features (D is a multiple of 3).

    With `decode`, the cache holds the last `window1` first keys and values and the last `window2` second
    ones. A step costs window1 * window2 triples a head, however long the sequence is.

    Attributes:
      num_heads: H.
      features: H * D.
      num_groups: G, a divisor of H, for grouped queries (the paper has 64 heads a group); None for G = H.
      out_features: features of the output; None for those of the inputs.
      window1: how many first keys a query sees, its own position included; None for all of the past. The
        paper's windows are 512 and 32; the order makes no difference in speed.
      window2: the same for second keys.
      causal: whether the future is hidden; windows and `decode` need it.
      logit: "trilinear" or "signed".
      rotary: whether queries and keys of the signed logit are rotated by position. The trilinear logit is not
        invariant under rotations, and its queries and keys never are.
      scale: factor of the logits; None for 1 / sqrt(D).
      decode: whether to keep a cache, for one position at a time.
      dtype: dtype of the products, None to promote inputs and parameters; softmax uses at least float32.
      param_dtype: dtype of the parameters.
    """

    num_heads: int
    features: int
    num_groups: int | None = None
    out_features: int | None = None
    window1: int | None = None
    window2: int | None = None
    causal: bool = True
    logit: Literal["trilinear", "signed"] = "trilinear"
    rotary: bool = True
    scale: float | None = None
    decode: bool = False
    dtype: Dtype | None = None
    param_dtype: Dtype = jnp.float32

    @nn.compact
    def __call__(self, inputs: Float[Array, "*B N V"]) -> Float[Array, "*B N F"]:
        """Lets every position attend to pairs of positions.

        With `decode`, `inputs` are a prompt, for which the cache must be empty, or the next position. The
        output is NaN for a prompt after other positions, and where keys of the past are lost because the
        sequence is longer than the inputs of the initialisation.

        Raises:
          ValueError: a field is out of range, or `inputs` has fewer than two axes or a prompt is too long.
        """
        size = self._checked_size()
        groups = self.num_groups or self.num_heads
        types = {"dtype": self.dtype, "param_dtype": self.param_dtype}
        (query,) = HeadProjections(1, self.num_heads, self.features, name="query", **types)(inputs)
        key1, key2, value1, value2 = HeadProjections(
            4, groups, groups * size, name="keys_and_values", **types
        )(inputs)
        scale = 1 / math.sqrt(size) if self.scale is None else checks.positive("scale", self.scale)
        cache = DecodingCache((self.window1, self.window2), name="cache") if self.decode else None
        if self.logit == "signed" and self.rotary:
            positions = jnp.arange(inputs.shape[-2]) + (0 if cache is None else cache.position())
            query, key1, key2 = (rotate(x, positions, 3) for x in (query, key1, key2))
        held = None if cache is None else cache((key1, value1), (key2, value2))
        if held is not None and held.step:
            (key1, value1), (key2, value2) = held.arrays
        if self.logit == "signed":
            query, key1, key2 = determinant_factors(query, key1, key2)
        if held is not None and held.step:
            seen1, seen2 = held.seen
            out = attend_from_one(query, key1, key2, value1, value2, seen1, seen2, scale)
        else:
            value1, value2 = (_widened(x, key1.shape[-1]) for x in (value1, value2))
            windows = {"window1": self.window1, "window2": self.window2, "causal": self.causal}
            out = trilinear_attention(query, key1, key2, value1, value2, scale=scale, **windows)
            out = out[..., :size]
        out = _mapped(joined_heads(out), self.out_features or inputs.shape[-1], **types)
        return out if held is None else held.checked(out)

    def _checked_size(self) -> int:
        """Returns D; raises ValueError if a field is out of range. `kernels` checks the windows."""
        size = _head_size(self.num_heads, self.num_groups, self.features)
        if self.logit not in ("trilinear", "signed"):
            raise ValueError(f"logit: got {self.logit!r}, expected 'trilinear' or 'signed'")
        if self.logit == "signed" and size % 3:
            raise ValueError(f"features: got D = {size}, expected a multiple of 3 with logit='signed'")
        if self.decode and not self.causal:
            raise ValueError("decode: got True with causal=False, expected causal=True")
        return size


class RotaryAttention(nn.Module):
    """Causal dot-product attention with rotary positions, grouped queries and an output map.

    The attention of the other layers in `SimplicialDecoder`; fields and errors as in `TrilinearAttention`,
    with one window. D is even. A cached step costs `window` products a head.
    """

    num_heads: int
    features: int
    num_groups: int | None = None
    out_features: int | None = None
    window: int | None = None
    decode: bool = False
    dtype: Dtype | None = None
    param_dtype: Dtype = jnp.float32

    @nn.compact
    def __call__(self, inputs: Float[Array, "*B N V"]) -> Float[Array, "*B N F"]:
        """Lets every position attend to itself and those before it; `decode` as in `TrilinearAttention`."""
        check_entities("inputs", inputs)
        if self.window is not None:
            whole_number("window", self.window)
        size = _head_size(self.num_heads, self.num_groups, self.features)
        if size % 2:
            raise ValueError(f"features: got D = {size}, expected an even number, for rotary positions")
        groups, length = self.num_groups or self.num_heads, inputs.shape[-2]
        types = {"dtype": self.dtype, "param_dtype": self.param_dtype}
        (query,) = HeadProjections(1, self.num_heads, self.features, name="query", **types)(inputs)
        key, value = HeadProjections(2, groups, groups * size, name="keys_and_values", **types)(inputs)
        cache = DecodingCache((self.window,), name="cache") if self.decode else None
        positions = jnp.arange(length) + (0 if cache is None else cache.position())
        query, key = rotate(query, positions), rotate(key, positions)
        held = None if cache is None else cache((key, value))
        if held is not None and held.step:
            ((key, value),), (seen,) = held.arrays, held.seen
            allowed = seen[None]
        else:
            back = jnp.arange(length)[:, None] - jnp.arange(length)[None]
            allowed = (back >= 0) & (back < (self.window or length))
        query = query.reshape(*query.shape[:-2], groups, self.num_heads // groups, size)
        wide = jnp.promote_types(query.dtype, jnp.float32)
        logits = jnp.einsum("...igrd,...jgd->...grij", query, key, preferred_element_type=wide)
        allowed = allowed.reshape((1,) * (logits.ndim - 2) + allowed.shape)
        weights = masked_softmax(logits / math.sqrt(size), allowed).astype(value.dtype)
        out = jnp.einsum("...grij,...jgd->...igrd", weights, value)
        out = out.reshape(*out.shape[:-3], self.features)
        out = _mapped(out, self.out_features or inputs.shape[-1], **types)
        return out if held is None else held.checked(out)


class DecoderBlock(nn.Module):
    """x + attention(LayerNorm(x)), then x + feed_forward(LayerNorm(x)): a pre-LayerNorm Transformer block.

    Attributes:
      attention: `TrilinearAttention`, `RotaryAttention` or another module from [*B, N, V] to [*B, N, V].
      feed_forward: g; its `features` equal V.
      dtype: output dtype of the LayerNorms; their sums use at least float32.
      param_dtype: dtype of the LayerNorms' parameters.
    """

    attention: nn.Module
    feed_forward: FeedForward
    dtype: Dtype | None = None
    param_dtype: Dtype = jnp.float32

    @nn.compact
    def __call__(self, inputs: Float[Array, "*B N V"]) -> Float[Array, "*B N V"]:
        """Applies both sublayers to every position."""
        check_entities("inputs", inputs, self.feed_forward.features)
        types = {"dtype": self.dtype, "param_dtype": self.param_dtype}
        inputs = inputs + self.attention(LayerNorm(name="attention_norm", **types)(inputs))
        return inputs + self.feed_forward(LayerNorm(name="feed_forward_norm", **types)(inputs))


class SimplicialDecoder(nn.Module):
    """A causal language model in which every few layers attend to pairs: Roy et al. (2025), Section 6.

    The paper makes every fourth layer 2-simplicial, with windows of 512 and 32, and uses the trilinear logit;
    the other layers are dot-product attention. The embedding also maps to the logits.

    Attributes:
      vocab_size: A.
      features: V, and H * D of both attentions.
      num_layers: number of blocks.
      num_heads: H of both attentions.
      num_groups: G of both attentions; None for G = H.
      hidden: hidden size of the feed-forward layers.
      every: blocks `every`, 2 * `every`, ..., counted from 1, are 2-simplicial; 0 for none.
      window1, window2, logit: as in `TrilinearAttention`.
      decode: whether to keep a cache, for one position at a time.
      dtype: dtype of the products; softmax and the sums of LayerNorms use at least float32.
      param_dtype: dtype of the parameters.
    """

    vocab_size: int
    features: int = 64
    num_layers: int = 4
    num_heads: int = 4
    num_groups: int | None = None
    hidden: int = 256
    every: int = 4
    window1: int | None = 32
    window2: int | None = 512
    logit: Literal["trilinear", "signed"] = "trilinear"
    decode: bool = False
    dtype: Dtype | None = None
    param_dtype: Dtype = jnp.float32

    @nn.compact
    def __call__(self, tokens: Integer[Array, "*B N"]) -> Float[Array, "*B N A"]:
        """Returns for each position the logits of the next token; `decode` as in `TrilinearAttention`.

        Tokens that are not 0 to A - 1, negative ones too, give NaN.

        Raises:
          ValueError: a field is out of range, or `tokens` are no integers.
        """
        for name, least in (("vocab_size", 1), ("num_layers", 1), ("every", 0)):
            whole_number(name, getattr(self, name), least)
        if not jnp.issubdtype(tokens.dtype, jnp.integer):
            raise ValueError(f"tokens: got dtype {tokens.dtype}, expected integers")
        types = {"dtype": self.dtype, "param_dtype": self.param_dtype}
        # Modules without a parent belong to the block that they are given to.
        unbound = {**types, "parent": None}
        heads = {"num_heads": self.num_heads, "features": self.features, "num_groups": self.num_groups}
        windows = {"window1": self.window1, "window2": self.window2, "logit": self.logit}
        shared = {**heads, "decode": self.decode, **unbound}
        embedding = nn.Embed(self.vocab_size, self.features, name="embedding", **types)
        tokens = jnp.asarray(tokens, jnp.int32)  # narrow types may lack `vocab_size`
        known = (tokens >= 0) & (tokens < self.vocab_size)
        x = embedding(tokens)
        x = jnp.where(known[..., None], x, jnp.nan)
        for i in range(1, self.num_layers + 1):
            simplicial = self.every and i % self.every == 0
            attention = TrilinearAttention(**windows, **shared) if simplicial else RotaryAttention(**shared)
            feed_forward = FeedForward(self.hidden, self.features, **unbound)
            x = DecoderBlock(attention, feed_forward, name=f"block_{i}", **types)(x)
        return embedding.attend(LayerNorm(name="norm", **types)(x))


def _mapped(x: Float[Array, "*B N F"], features: int, **types) -> Float[Array, "*B N V"]:
    """Applies the output map of an attention, in whose compact method it is called."""
    out = Dense(features, use_bias=False, name="output", **types)(as_rows(x))
    return out.reshape(*x.shape[:-1], features)


def _widened(x: Float[Array, "*B N G D"], size: int) -> Float[Array, "*B N G E"]:
    """Pads the last axis with zeros."""
    return jnp.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, size - x.shape[-1])])


def _head_size(num_heads: int, num_groups: int | None, features: int) -> int:
    """Returns D; raises ValueError if heads do not divide features, or groups heads."""
    if num_heads < 1 or features < 1 or features % num_heads:
        raise ValueError(f"num_heads: got {num_heads}, expected a divisor of features = {features}")
    if num_groups is not None and (num_groups < 1 or num_heads % num_groups):
        raise ValueError(f"num_groups: got {num_groups}, expected a divisor of num_heads = {num_heads}")
    return features // num_heads
