"""TP-Multi-Head Attention, and the multi-head attention that it extends: Schlag et al. (2019), Section 2.1.

Each head retrieves a filler by attention, as ever, and binds it to a role vector made from the querying cell:
their tensor product, of which only the diagonal is kept. Queries, keys, values and roles are affine maps.

Either module stands alone, called as `flax.linen.MultiHeadDotProductAttention` is: a drop-in for it. On
request, `mutable=["intermediates"]`, they sow "weights" [*B, H, T, S] and, where there are roles, "roles"
[*B, T, H, D]; nothing is kept, and the weights are not even computed, otherwise.

Axis letters: B batch (any number of leading axes), T queries, S keys and values, I features of a cell, H
heads, D features of a head, O outputs.
"""

from collections.abc import Sequence
from typing import ClassVar, Literal

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from flax.typing import Dtype
from jax.nn.initializers import Initializer, variance_scaling
from jaxtyping import Array, Bool, Float

from kernels import checks, masked_softmax

Implementation = Literal["xla", "cudnn"]

# Uniform up to 1 / sqrt(inputs): what PyTorch gives an affine map that nobody initialises.
uniform_by_inputs = variance_scaling(1 / 3, "fan_in", "uniform")


def dot_product_weights(
    query: Float[Array, "*B T H D"],
    key: Float[Array, "*B S H D"],
    mask: Bool[Array, "*#B #H #T #S"] | None = None,
    *,
    is_causal: bool = False,
) -> Float[Array, "*B H T S"]:
    """softmax_s(<q_t, k_s> / sqrt(D)), equation (5), in float32 at least; 0 where s is not allowed.

    Args:
      query: of each head.
      key: of each head.
      mask: True where query t may attend to s, as many axes as the weights.
      is_causal: whether query t may attend to s <= t only, besides the mask.
    """
    dtype = jnp.promote_types(query.dtype, jnp.float32)
    logits = jnp.einsum("...thd,...shd->...hts", query, key, preferred_element_type=dtype)
    logits = logits / np.sqrt(query.shape[-1]).astype(dtype)
    return masked_softmax(logits, _with_past(mask, logits.shape) if is_causal else mask)


def single_query_fillers(
    query: Float[Array, "*B 1 H D"],
    key: Float[Array, "*B S H D"],
    value: Float[Array, "*B S H D"],
    mask: Bool[Array, "*#B #H 1 #S"] | None = None,
) -> Float[Array, "*B 1 H D"]:
    """v-bar of equation (4) for one query a row, as in decoding: the same numbers, as sums.

    There is nothing to gain from a matrix unit here: the time is that of reading keys and values, and what
    XLA makes of a product with one row turns them around first, which takes as long again.
    """
    key, value = jnp.swapaxes(key, -3, -2), jnp.swapaxes(value, -3, -2)  # [*B, H, S, D], as a cache has them
    dtype = jnp.promote_types(query.dtype, jnp.float32)
    logits = jnp.sum(jnp.swapaxes(query, -3, -2) * key, axis=-1, dtype=dtype)
    logits = logits / np.sqrt(query.shape[-1]).astype(dtype)
    weights = masked_softmax(logits, None if mask is None else mask[..., 0, :]).astype(value.dtype)
    filler = jnp.sum(weights[..., None] * value, axis=-2, dtype=dtype)
    return filler[..., None, :, :].astype(query.dtype)


def _with_past(mask: Bool[Array, "*#B #H #T #S"] | None, shape: Sequence[int]) -> Bool[Array, "*#B #H T S"]:
    """What a mask of logits [*B, H, T, S] allows of s <= t."""
    past = jnp.expand_dims(jnp.tril(jnp.ones(shape[-2:], bool)), range(len(shape) - 2))
    return past if mask is None else past & mask


def bind(filler: Float[Array, "*B T H D"], role: Float[Array, "*B T H D"]) -> Float[Array, "*B T H D"]:
    """The diagonal of the tensor product of filler and role: the binding of equation (6)."""
    return filler * role


class Affine(nn.Module):
    """W x + b of the last axis, its rows in one product.

    Products have the same values if other axes stay apart, but the matrix's gradient is then a sum over
    several axes, not one: on CPUs three times as slow.

    Attributes:
      kernel_init: of W, [inputs, outputs].
      bias_init: of b; None for uniform up to 1 / sqrt(inputs), as PyTorch has it.
      use_bias: whether there is a b.
      dtype: type of the product; None is the widest of inputs and parameters.
      param_dtype: type of the parameters.
    """

    kernel_init: Initializer = uniform_by_inputs
    bias_init: Initializer | None = None
    use_bias: bool = True
    dtype: Dtype | None = None
    param_dtype: Dtype = jnp.float32

    @nn.compact
    def __call__(self, inputs: Float[Array, "*B I"], features: int) -> Float[Array, "*B O"]:
        """As many outputs as `features` says."""
        width = inputs.shape[-1]
        kernel = self.param("kernel", self.kernel_init, (width, features), self.param_dtype)
        bias = None
        if self.use_bias:
            bias_init = self.bias_init or _uniform(width**-0.5)
            bias = self.param("bias", bias_init, (features,), self.param_dtype)
        inputs, kernel, bias = nn.dtypes.promote_dtype(inputs, kernel, bias, dtype=self.dtype)
        outputs = inputs.reshape(-1, width) @ kernel
        if bias is not None:
            outputs += bias[None]
        return outputs.reshape(*inputs.shape[:-1], features)


class MultiHeadAttention(nn.Module):
    """Scaled dot-product attention of several heads, with an affine map after it.

    Attributes:
      num_heads: H.
      qkv_features: H * D of queries, keys, values and roles; None for as many as the queries' inputs have.
      out_features: O; None for as many as the queries' inputs have.
      dropout_rate: how many of the attention weights are dropped. Where some are, the weights are computed in
        plain sight: `jax.nn.dot_product_attention` does not drop.
      kernel_init: of all matrices.
      bias_init: of all biases; None for uniform up to 1 / sqrt(inputs).
      use_bias: whether the maps are affine or linear.
      implementation: of `jax.nn.dot_product_attention`; None for JAX's choice. "cudnn" is the fused one of
        NVIDIA GPUs; it takes float16 and bfloat16 only and, to learn under a mask, even numbers of queries
        and keys.
      dtype: type of the products; None is the widest of inputs and parameters. Softmax is float32 at least.
      param_dtype: type of the parameters.
    """

    num_heads: int
    qkv_features: int | None = None
    out_features: int | None = None
    dropout_rate: float = 0.0
    kernel_init: Initializer = uniform_by_inputs
    bias_init: Initializer | None = None
    use_bias: bool = True
    implementation: Implementation | None = None
    dtype: Dtype | None = None
    param_dtype: Dtype = jnp.float32

    binds_roles: ClassVar[bool] = False

    def setup(self):
        """One map each, so that a checkpoint's conversion is a table of names."""
        for name in ("query", "key", "value", "output", *(("role",) if self.binds_roles else ())):
            affine = Affine(self.kernel_init, self.bias_init, self.use_bias, self.dtype, self.param_dtype)
            setattr(self, name, affine)
        self.dropout = nn.Dropout(self.dropout_rate)

    def __call__(
        self,
        inputs_q: Float[Array, "*B T I"],
        inputs_k: Float[Array, "*B S J"] | None = None,
        inputs_v: Float[Array, "*B S K"] | None = None,
        *,
        mask: Bool[Array, "*#B #H #T #S"] | None = None,
        is_causal: bool = False,
        deterministic: bool = True,
    ) -> Float[Array, "*B T O"]:
        """Every query attends to the keys: TPMHA(z_t, z_1:T) of equation (6).

        Args:
          inputs_q: of queries and, where there are any, roles.
          inputs_k: of keys; None for those of the queries.
          inputs_v: of values; None for those of the keys.
          mask: True where query t may attend to key s. A query that may attend to none retrieves 0.
          is_causal: whether query t may attend to keys s <= t only, besides the mask.
          deterministic: False to drop; needs a key "dropout".

        Raises:
          ValueError: a shape or type that does not fit, by the argument's name.
        """
        inputs_k = inputs_q if inputs_k is None else inputs_k
        inputs_v = inputs_k if inputs_v is None else inputs_v
        _check_cells("inputs_q", inputs_q)
        _check_context("inputs_k", inputs_k, inputs_q.shape[:-2])
        _check_context("inputs_v", inputs_v, inputs_k.shape[:-1])
        features = self._features(inputs_q)
        keys, values = self.keys_and_values(inputs_k, inputs_v, features)
        return self.attend(
            inputs_q, keys, values, mask=mask, is_causal=is_causal, deterministic=deterministic
        )

    def keys_and_values(
        self, inputs_k: Float[Array, "*B S J"], inputs_v: Float[Array, "*B S K"], features: int | None = None
    ) -> tuple[Float[Array, "*B S H D"], Float[Array, "*B S H D"]]:
        """Keys and values of equation (3): what decoding keeps of a cell.

        Args:
          inputs_k: of keys.
          inputs_v: of values.
          features: H * D; None for `qkv_features` or as many as the keys' inputs have.
        """
        features = features or self._features(inputs_k)
        return self._heads(self.key(inputs_k, features)), self._heads(self.value(inputs_v, features))

    def attend(
        self,
        inputs_q: Float[Array, "*B T I"],
        keys: Float[Array, "*B S H D"],
        values: Float[Array, "*B S H D"],
        *,
        mask: Bool[Array, "*#B #H #T #S"] | None = None,
        is_causal: bool = False,
        deterministic: bool = True,
    ) -> Float[Array, "*B T O"]:
        """`__call__` to keys and values that are there already."""
        batch, (t, width), s = inputs_q.shape[:-2], inputs_q.shape[-2:], keys.shape[-3]
        mask = checks.mask(mask, (*batch, self.num_heads, t, s), "[*B, H, T, S]")
        features = self._features(inputs_q)
        query = self._heads(self.query(inputs_q, features))
        filler = self._fillers(query, keys, values, mask, is_causal, deterministic)  # (4)
        if self.binds_roles:
            role = self._heads(self.role(inputs_q, features))
            self.sow("intermediates", "roles", role)
            filler = bind(filler, role)
        return self.output(filler.reshape(*batch, t, features), self.out_features or width)

    def _fillers(self, query, keys, values, mask, is_causal, deterministic):
        """v-bar of equation (4)."""
        # What JAX's function does not do, or does in float32: its softmax is never float64.
        plainly = (self.dropout_rate > 0 and not deterministic) or query.dtype == jnp.float64
        if plainly or self.is_mutable_collection("intermediates"):
            weights = dot_product_weights(query, keys, mask, is_causal=is_causal)
            self.sow("intermediates", "weights", weights)
            if plainly:
                weights = self.dropout(weights, deterministic=deterministic).astype(values.dtype)
                return jnp.einsum("...hts,...shd->...thd", weights, values)
        if query.shape[-3] == 1 and not is_causal and self.implementation != "cudnn":
            return single_query_fillers(query, keys, values, mask)
        *batch, t, h, _ = query.shape
        flat = [x.reshape(-1, *x.shape[-3:]) for x in (query, keys, values)]
        rows = None if mask is None else checks.flatten_batch(mask, batch, 3)
        if rows is not None and self.implementation == "cudnn":  # which wants a row of it for each query
            rows = jnp.broadcast_to(rows, (*rows.shape[:-2], t, rows.shape[-1]))
        filler = jax.nn.dot_product_attention(
            *flat, mask=rows, is_causal=is_causal, implementation=self.implementation
        ).reshape(query.shape)
        if mask is None:
            return filler
        # Where nothing is allowed, JAX's function gives the mean of all values.
        allowed = _with_past(mask, (*batch, h, t, keys.shape[-3])) if is_causal else mask
        some = jnp.swapaxes(jnp.any(allowed, axis=-1, keepdims=True), -3, -2)
        return jnp.where(some, filler, 0)

    def _heads(self, x: Float[Array, "*B T F"]) -> Float[Array, "*B T H D"]:
        return x.reshape(*x.shape[:-1], self.num_heads, x.shape[-1] // self.num_heads)

    @nn.nowrap
    def _features(self, inputs: Float[Array, "*B T I"]) -> int:
        features = self.qkv_features or inputs.shape[-1]
        if self.num_heads < 1 or features % self.num_heads:
            raise ValueError(f"num_heads is {self.num_heads}, expected a divisor of {features} features")
        return features


class TPMultiHeadAttention(MultiHeadAttention):
    """Attention whose heads bind what they retrieve to a role: TPMHA, equations (3) to (6).

    The roles come from the queries' inputs, in cross-attention too; one bias serves all heads' outputs.
    """

    binds_roles: ClassVar[bool] = True


def _uniform(limit: float) -> Initializer:
    def init(key, shape, dtype=jnp.float32, out_sharding=None):
        return jax.random.uniform(key, shape, dtype, -limit, limit)

    return init


def _check_cells(name: str, x: Array) -> None:
    if x.ndim < 2 or not jnp.issubdtype(x.dtype, jnp.floating):
        raise ValueError(
            f"{name} has shape {x.shape} and type {x.dtype}, expected floating point numbers [..., T, I]"
        )


def _check_context(name: str, x: Array, leading: tuple[int, ...]) -> None:
    _check_cells(name, x)
    if x.shape[: len(leading)] != leading or x.ndim not in (len(leading) + 1, len(leading) + 2):
        raise ValueError(f"{name} has shape {x.shape}, expected {leading} before its last axes")
