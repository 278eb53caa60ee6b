"""TP-Multi-Head Attention and the multi-head attention it extends: Schlag et al. (2019), Section 2.1.

Each head retrieves a filler by dot-product attention and binds it to a role vector computed from the querying
cell. The binding is their tensor product, of which only the diagonal is kept. Queries, keys, values and roles
are affine maps.

Either module can be used by itself, as a drop-in replacement for `flax.linen.MultiHeadDotProductAttention`.
With `mutable=["intermediates"]` they sow "weights" [*B, H, T, S] and, with roles, "roles" [*B, T, H, D];
otherwise nothing is kept and the weights are not computed.

Axis letters: B batch (any number of leading axes), T queries, S keys and values, I, J, K features of a cell,
H heads, D features of a head, F = H D, O outputs.
"""

import math
from collections.abc import Sequence
from typing import ClassVar, Literal

import jax
import jax.numpy as jnp
from flax import linen as nn
from flax.typing import Dtype
from jax.nn.initializers import Initializer, variance_scaling
from jaxtyping import Array, Bool, Float

from kernels import checks, masked_softmax

Implementation = Literal["xla", "cudnn"]

# Uniform up to 1 / sqrt(inputs): PyTorch's default initialisation of an affine map.
uniform_by_inputs = variance_scaling(1 / 3, "fan_in", "uniform")


def dot_product_weights(
    query: Float[Array, "*B T H D"],
    key: Float[Array, "*B S H D"],
    mask: Bool[Array, "*#B #H #T #S"] | None = None,
    *,
    is_causal: bool = False,
) -> Float[Array, "*B H T S"]:
    """Computes softmax_s(<q_t, k_s> / sqrt(D)), equation (5), in float32 or wider; 0 where s is not allowed.

    Args:
      query: queries of each head.
      key: keys of each head.
      mask: True where query t may attend to key s; has as many axes as the weights.
      is_causal: whether to also restrict query t to keys s <= t.

    Raises:
      ValueError: the mask is not boolean or does not broadcast.
    """
    dtype = jnp.promote_types(query.dtype, jnp.float32)
    logits = jnp.einsum("...thd,...shd->...hts", query, key, preferred_element_type=dtype)
    logits = logits / math.sqrt(query.shape[-1])
    mask = checks.mask(mask, logits.shape, "[*B, H, T, S]")
    return masked_softmax(logits, _with_past(mask, logits.shape) if is_causal else mask)


def single_query_fillers(
    query: Float[Array, "*B 1 H D"],
    key: Float[Array, "*B S H D"],
    value: Float[Array, "*B S H D"],
    mask: Bool[Array, "*#B #H 1 #S"] | None = None,
) -> Float[Array, "*B 1 H D"]:
    """Computes v-bar of equation (4) for a single query per row, as in decoding, by sums instead of products.

    A matrix unit gains nothing here: reading keys and values dominates the time, and XLA's product with a
    single row transposes them first, which takes as long again.
    """
    key, value = jnp.swapaxes(key, -3, -2), jnp.swapaxes(value, -3, -2)  # [*B, H, S, D], a cache's layout
    dtype = jnp.promote_types(query.dtype, jnp.float32)
    logits = jnp.sum(jnp.swapaxes(query, -3, -2) * key, axis=-1, dtype=dtype)
    logits = logits / math.sqrt(query.shape[-1])
    weights = masked_softmax(logits, None if mask is None else mask[..., 0, :]).astype(value.dtype)
    filler = jnp.sum(weights[..., None] * value, axis=-2)  # accumulates in float32 at least
    return filler[..., None, :, :]


def _with_past(mask: Bool[Array, "*#B #H #T #S"] | None, shape: Sequence[int]) -> Bool[Array, "*#B #H T S"]:
    """Restricts a mask of logits [*B, H, T, S] to s <= t."""
    past = jnp.expand_dims(jnp.tril(jnp.ones(shape[-2:], bool)), range(len(shape) - 2))
    return past if mask is None else past & mask


def bind(filler: Float[Array, "*B T H D"], role: Float[Array, "*B T H D"]) -> Float[Array, "*B T H D"]:
    """Returns the diagonal of the tensor product of filler and role: the binding of equation (6)."""
    return filler * role


class Affine(nn.Module):
    """W x + b over the last axis, as one matrix product of all rows.

    Keeping the other axes separate would give the same values, but the matrix's gradient would be a sum over
    several axes, which is three times as slow on CPUs.

    Attributes:
      kernel_init: initialiser of W, [inputs, outputs].
      bias_init: initialiser of b; None for uniform up to 1 / sqrt(inputs), as in PyTorch.
      use_bias: whether to add b.
      dtype: dtype of the product; None promotes inputs and parameters.
      param_dtype: dtype of the parameters.
    """

    kernel_init: Initializer = uniform_by_inputs
    bias_init: Initializer | None = None
    use_bias: bool = True
    dtype: Dtype | None = None
    param_dtype: Dtype = jnp.float32

    @nn.compact
    def __call__(self, inputs: Float[Array, "*B I"], features: int) -> Float[Array, "*B O"]:
        """Maps the last axis to `features` outputs."""
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
    """Scaled dot-product attention with several heads, followed by an affine map.

    Attributes:
      num_heads: H.
      qkv_features: F = H * D of queries, keys, values and roles; None for the features of the queries'
        inputs.
      out_features: O; None for the features of the queries' inputs.
      dropout_rate: dropout rate of the attention weights. Active dropout needs explicit weights, because
        `jax.nn.dot_product_attention` has no dropout.
      kernel_init: initialiser of all matrices.
      bias_init: initialiser of all biases; None for uniform up to 1 / sqrt(inputs).
      use_bias: whether the maps are affine or linear.
      implementation: `implementation` of `jax.nn.dot_product_attention`; None for JAX's choice. "cudnn" is
        fused attention on NVIDIA GPUs; it supports only float16 and bfloat16 and, for gradients with a mask,
        only even numbers of queries and keys.
      dtype: dtype of the products; None promotes inputs and parameters. Softmax uses at least float32.
      param_dtype: dtype of the parameters.
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
        """Creates one submodule per map, so that converting a checkpoint is a table of names."""
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
        mask: Bool[Array, "..."] | None = None,
        is_causal: bool = False,
        deterministic: bool = True,
    ) -> Float[Array, "*B T O"]:
        """Lets every query attend to the keys: TPMHA(z_t, z_1:T) of equation (6).

        Args:
          inputs_q: inputs of queries and, if any, roles.
          inputs_k: inputs of keys; None for `inputs_q`.
          inputs_v: inputs of values; None for `inputs_k`.
          mask: True where query t may attend to key s; broadcasts to [*B, H, T, S]. A query with no allowed
            key retrieves 0.
          is_causal: whether to also restrict query t to keys s <= t.
          deterministic: False to apply dropout, which needs an RNG named "dropout".

        Raises:
          ValueError: an argument has the wrong shape or dtype.
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
        """Computes the keys and values of equation (3), which decoding caches.

        Args:
          inputs_k: inputs of keys.
          inputs_v: inputs of values.
          features: F = H * D; None for `qkv_features` or the features of `inputs_k`.
        """
        features = features or self._features(inputs_k)
        return self._heads(self.key(inputs_k, features)), self._heads(self.value(inputs_v, features))

    def relation(self, inputs_q: Float[Array, "*B T I"], features: int) -> Float[Array, "*B T H D"]:
        """Computes the vectors r of equation (3), to which the fillers are bound."""
        return self._heads(self.role(inputs_q, features))

    def attend(
        self,
        inputs_q: Float[Array, "*B T I"],
        keys: Float[Array, "*B S H D"],
        values: Float[Array, "*B S H D"],
        *,
        mask: Bool[Array, "..."] | None = None,
        is_causal: bool = False,
        deterministic: bool = True,
    ) -> Float[Array, "*B T O"]:
        """Does the same as `__call__` with keys and values computed beforehand."""
        batch, (t, width), s = inputs_q.shape[:-2], inputs_q.shape[-2:], keys.shape[-3]
        mask = checks.mask(mask, (*batch, self.num_heads, t, s), "[*B, H, T, S]")
        features = self._features(inputs_q)
        query = self._heads(self.query(inputs_q, features))
        filler = self._fillers(query, keys, values, mask, is_causal, deterministic)  # (4)
        if self.binds_roles:
            role = self.relation(inputs_q, features)
            self.sow("intermediates", "roles", role)
            filler = bind(filler, role)
        return self.output(filler.reshape(*batch, t, features), self.out_features or width)

    def _fillers(self, query, keys, values, mask, is_causal, deterministic):
        """Computes v-bar of equation (4)."""
        # JAX's function has no dropout, and its softmax is float32 even for float64 inputs.
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
        if rows is not None and self.implementation == "cudnn":  # which needs one mask row per query
            rows = jnp.broadcast_to(rows, (*rows.shape[:-2], t, rows.shape[-1]))
        filler = jax.nn.dot_product_attention(
            *flat, mask=rows, is_causal=is_causal, implementation=self.implementation
        ).reshape(query.shape)
        if mask is None:
            return filler
        # JAX's function returns the mean of all values for rows with no allowed key.
        allowed = _with_past(mask, (*batch, h, t, keys.shape[-3])) if is_causal else mask
        some = jnp.swapaxes(jnp.any(allowed, axis=-1, keepdims=True), -3, -2)
        return jnp.where(some, filler, 0)

    def _heads(self, x: Float[Array, "*B T F"]) -> Float[Array, "*B T H D"]:
        return x.reshape(*x.shape[:-1], self.num_heads, x.shape[-1] // self.num_heads)

    @nn.nowrap
    def _features(self, inputs: Float[Array, "*B T I"]) -> int:
        features = self.qkv_features or inputs.shape[-1]
        if self.num_heads < 1 or features % self.num_heads:
            raise ValueError(f"num_heads: got {self.num_heads}, expected a divisor of {features} features")
        return features


class TPMultiHeadAttention(MultiHeadAttention):
    """Attention whose heads bind retrieved values to a role: TPMHA, equations (3) to (6).

    Roles are computed from the queries' inputs, also in cross-attention; the output map has one bias for all
    heads.
    """

    binds_roles: ClassVar[bool] = True


def _uniform(limit: float) -> Initializer:
    def init(key, shape, dtype=jnp.float32, out_sharding=None):
        return jax.random.uniform(key, shape, dtype, -limit, limit)

    return init


def _check_cells(name: str, x: Array) -> None:
    if x.ndim < 2 or not jnp.issubdtype(x.dtype, jnp.floating):
        raise ValueError(
            f"{name}: got shape {x.shape} and dtype {x.dtype}, expected floating-point [..., T, I]"
        )
    if x.shape[-2] == 0:
        raise ValueError(f"{name}: got shape {x.shape}, expected at least one position")


def _check_context(name: str, x: Array, leading: tuple[int, ...]) -> None:
    _check_cells(name, x)
    if x.shape[: len(leading)] != leading or x.ndim not in (len(leading) + 1, len(leading) + 2):
        raise ValueError(f"{name}: got shape {x.shape}, expected leading axes {leading} and one or two more")
