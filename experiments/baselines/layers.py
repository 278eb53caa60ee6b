"""Attention, feed-forward blocks and the residual stack that the encoders share.

Axis letters: B batch (any number of leading axes), N queries, M keys, D features, H heads, K features of a
head, R relations.
"""

import math
from typing import Any, Literal

import jax
import jax.numpy as jnp
from flax import linen as nn
from flax.typing import Dtype
from jaxtyping import Array, Bool, Float, Int

from kernels import masked_softmax

Norm = Literal["pre", "post"]
"""Whether LayerNorm precedes a sublayer or follows the residual sum."""


def split_heads(x: Float[Array, "*B HK"], num_heads: int) -> Float[Array, "*B H K"]:
    """Splits the last axis into heads."""
    return x.reshape(*x.shape[:-1], num_heads, x.shape[-1] // num_heads)


class Dense(nn.Dense):
    """`flax.linen.Dense` as one product of all rows.

    With leading axes kept apart the values would be the same, but a gradient would sum over several axes,
    which takes a Transformer on CPUs 1.2 to 1.4 times as long.
    """

    def __call__(self, inputs: Float[Array, "*B I"]) -> Float[Array, "*B O"]:
        """Maps the last axis to `features` outputs."""
        rows = super().__call__(inputs.reshape(-1, inputs.shape[-1]))
        return rows.reshape(*inputs.shape[:-1], self.features)


def project_heads(
    inputs: Float[Array, "*B D"], num_heads: int, *names: str, **types: Any
) -> tuple[Float[Array, "*B H K"], ...]:
    """Projects to as many features as the inputs have, split into heads, by a dense layer for each name.

    For use in a compact method; `types` are the dtypes of `flax.linen.Dense`.
    """
    return tuple(
        split_heads(Dense(inputs.shape[-1], name=name, **types)(inputs), num_heads) for name in names
    )


def join_heads(x: Float[Array, "*B H K"]) -> Float[Array, "*B HK"]:
    """Joins the last two axes, the inverse of `split_heads`."""
    return x.reshape(*x.shape[:-2], -1)


def attention_weights(
    logits: Float[Array, "*B N M"], features: int, mask: Bool[Array, "*#B #N #M"] | None = None
) -> Float[Array, "*B N M"]:
    """Computes softmax(logits / sqrt(features)) over the allowed keys; a row without any is 0."""
    return masked_softmax(logits / math.sqrt(features), mask)


def attend(
    query: Float[Array, "B N H K"],
    key: Float[Array, "B M H K"],
    value: Float[Array, "B M H K"],
    mask: Bool[Array, "#B #H #N #M"] | None = None,
    bias: Float[Array, "H N M"] | None = None,
) -> Float[Array, "B N H K"]:
    """Scaled dot-product attention, softmax(Q K^T / sqrt(K) + bias) V: Vaswani et al. (2017), equation 1.

    The softmax is computed in float32 at least.
    """
    wide = jnp.promote_types(query.dtype, jnp.float32)
    logits = jnp.einsum("bnhk,bmhk->bhnm", query, key, preferred_element_type=wide)
    if bias is not None:
        logits += bias[None].astype(wide) * math.sqrt(query.shape[-1])
    weights = attention_weights(logits, query.shape[-1], mask).astype(value.dtype)
    return jnp.einsum("bhnm,bmhk->bnhk", weights, value)


def one_hot_relations(
    relations: Int[Array, "B N N"], num_relations: int, dtype: Dtype = jnp.float32
) -> Float[Array, "B N N R"]:
    """Encodes the relation of each pair as a one-hot vector; -1 stands for no relation and gives 0.

    Products with these vectors replace look-ups, whose gradient scatters: slow, and on a GPU not the same to
    the bit in every run.
    """
    return jax.nn.one_hot(relations, num_relations, dtype=dtype)


class FeedForward(nn.Module):
    """max(0, x W_1 + b_1) W_2 + b_2: Vaswani et al. (2017), equation 2.

    Attributes:
      hidden: width of the hidden layer.
      dtype: dtype of the products; None takes the widest of inputs and parameters.
      param_dtype: dtype of the parameters.
    """

    hidden: int
    dtype: Dtype | None = None
    param_dtype: Dtype = jnp.float32

    @nn.compact
    def __call__(self, inputs: Float[Array, "*B D"]) -> Float[Array, "*B D"]:
        """Transforms each vector on its own."""
        types = {"dtype": self.dtype, "param_dtype": self.param_dtype}
        hidden = nn.relu(Dense(self.hidden, name="hidden", **types)(inputs))
        return Dense(inputs.shape[-1], name="output", **types)(hidden)


class Layer(nn.Module):
    """A mixer and a feed-forward block, each with a residual sum and a LayerNorm.

    Pre-LN, x + f(LN(x)), is from Xiong et al. (2020), Table 1; post-LN, LN(x + f(x)), from Vaswani et al.
    (2017), Section 3.1.

    Attributes:
      mixer: module from [*B, D] and any context to [*B, D], such as attention.
      hidden: width of the feed-forward block.
      norm: where LayerNorm goes, "pre" or "post".
      dtype: dtype of products and of the normalized values.
      param_dtype: dtype of the parameters.
    """

    mixer: nn.Module
    hidden: int
    norm: Norm = "pre"
    dtype: Dtype | None = None
    param_dtype: Dtype = jnp.float32

    @nn.compact
    def __call__(self, inputs: Float[Array, "*B D"], *context: Any) -> Float[Array, "*B D"]:
        """Applies both sublayers; `context` goes to the mixer."""
        types = {"dtype": self.dtype, "param_dtype": self.param_dtype}
        feed_forward = FeedForward(self.hidden, name="feed_forward", **types)
        mix_norm, feed_forward_norm = (
            layer_norm(name, **types) for name in ("mixer_norm", "feed_forward_norm")
        )
        if self.norm == "pre":
            inputs = inputs + self.mixer(mix_norm(inputs), *context)
            return inputs + feed_forward(feed_forward_norm(inputs))
        inputs = mix_norm(inputs + self.mixer(inputs, *context))
        return feed_forward_norm(inputs + feed_forward(inputs))


class Stack(nn.Module):
    """Layers with weights of their own; pre-LN ends in one more LayerNorm (Xiong et al. 2020, Table 1).

    Attributes:
      mixer: unbound module that each layer gets a copy of.
      num_layers: number of layers.
      hidden, norm, dtype, param_dtype: as in `Layer`.
    """

    mixer: nn.Module
    num_layers: int
    hidden: int
    norm: Norm = "pre"
    dtype: Dtype | None = None
    param_dtype: Dtype = jnp.float32

    @nn.compact
    def __call__(self, inputs: Float[Array, "*B D"], *context: Any) -> Float[Array, "*B D"]:
        """Applies the layers in order; `context` goes to every mixer."""
        types = {"dtype": self.dtype, "param_dtype": self.param_dtype}
        for i in range(self.num_layers):
            mixer = self.mixer.copy(parent=None)
            inputs = Layer(mixer, self.hidden, self.norm, name=f"layer_{i}", **types)(inputs, *context)
        return layer_norm("norm", **types)(inputs) if self.norm == "pre" else inputs


def layer_norm(name: str, dtype: Dtype | None, param_dtype: Dtype) -> nn.LayerNorm:
    """Makes a LayerNorm that subtracts the mean before squaring: E[x^2] - E[x]^2 would lose digits."""
    return nn.LayerNorm(1e-5, dtype, param_dtype, use_fast_variance=False, name=name)
