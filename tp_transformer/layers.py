"""Components of a TP-Transformer other than attention: embedding, feed-forward, encoder and decoder layers.

The plain Transformer uses the same components with plain attention and `binds_roles` off. Layers follow the
released code: LayerNorm before every sublayer, a residual sum after it, and one more LayerNorm of the sum at
the end of each layer.

Axis letters: B batch, T positions (of the target, in a decoder), S source positions, L capacity of a cache, K
parallel hypotheses, I features, V vocabulary, H heads, D features of a head.
"""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from flax import struct
from flax.typing import Dtype
from jax.nn.initializers import Initializer, glorot_uniform, normal
from jaxtyping import Array, Bool, Float, Int

from kernels.normalization import LayerNorm
from tp_transformer.attention import (
    Affine,
    Implementation,
    MultiHeadAttention,
    uniform_by_inputs,
)


def sinusoids(length: int, features: int) -> Float[np.ndarray | Array, "length features"]:
    """Returns the positional representations p_t of equation (2), in float32.

    sin and cos alternate, with wavelengths from 2 pi to 20000 pi, as in Vaswani et al. (2017). If the length
    is symbolic, under `jax.export`, they are computed in float32 when the exported function runs.

    Raises:
      ValueError: `features` is odd and cannot be filled by pairs of sin and cos.
    """
    if features % 2:
        raise ValueError(f"features: got {features}, expected an even number, half sines and half cosines")
    numpy = np if isinstance(length, int) else jnp
    angles = numpy.arange(length)[:, None] * 1e4 ** (-np.arange(0, features, 2) / features)[None]
    waves = numpy.stack([numpy.sin(angles), numpy.cos(angles)], axis=-1)
    return waves.reshape(length, features).astype(np.float32)


class Embedding(nn.Module):
    """Maps symbols to cells, equation (2), and cells to logits, equation (8), with one shared matrix.

    Rows are looked up by a product with one-hot vectors, whose gradient is a product as well. This avoids
    scattered sums, which are slow and, on GPUs, nondeterministic in order. The vocabulary is small. Ids that
    are not 0 to V - 1, negative ones too, embed as NaN: zeros would give wrong answers in silence.

    Attributes:
      vocab_size: V.
      features: I.
      binds_roles: z = e * r if True, z = e otherwise.
      dropout_rate: dropout rate of z.
      dtype: dtype of products and of z; None means `param_dtype`.
      param_dtype: dtype of the parameters.
    """

    vocab_size: int
    features: int
    binds_roles: bool
    dropout_rate: float = 0.0
    dtype: Dtype | None = None
    param_dtype: Dtype = jnp.float32

    def setup(self):
        """Creates E and, with roles, W_p and b_p."""
        # The paper draws E from N(0, 1) and also multiplies by sqrt(d); the released code uses N(0, 1/d).
        init = normal(self.features**-0.5)
        self.tokens = self.param("tokens", init, (self.vocab_size, self.features), self.param_dtype)
        if self.binds_roles:
            # In place of the paper's N(1, 1), the released code uses N(0, 1/d) and adds 1 to the role.
            self.role = Affine(init, dtype=self.dtype, param_dtype=self.param_dtype)
        self.dropout = nn.Dropout(self.dropout_rate)

    def __call__(
        self,
        tokens: Int[Array, "B T"],
        positions: Float[Array | np.ndarray, "#T I"],
        *,
        deterministic: bool = True,
    ) -> Float[Array, "B T I"]:
        """Computes z_t,0 of symbols at positions whose sinusoids are given."""
        tokens = tokens.astype(jnp.promote_types(tokens.dtype, jnp.int32))  # narrower may lack `vocab_size`
        # Full precision: by default a TPU or GPU would round a float32 table to fewer bits.
        one_hot = jax.nn.one_hot(tokens.reshape(-1), self.vocab_size, dtype=self.tokens.dtype)
        rows = jnp.matmul(one_hot, self.tokens, precision=jax.lax.Precision.HIGHEST)
        known = (tokens >= 0) & (tokens < self.vocab_size)
        scale = jnp.where(known, math.sqrt(self.features), jnp.nan).astype(rows.dtype)
        e = rows.reshape(*tokens.shape, self.features) * scale[..., None]
        e = (e + jnp.asarray(positions, e.dtype)[None]).astype(self.dtype or self.param_dtype)
        z = e * self.relation(e) if self.binds_roles else e
        return self.dropout(z, deterministic=deterministic)

    def relation(self, e: Float[Array, "B T I"]) -> Float[Array, "B T I"]:
        """Computes the roles r of equation (2)."""
        return self.role(e, self.features) + 1

    def logits(self, cells: Float[Array, "B T I"]) -> Float[Array, "B T V"]:
        """Computes E^T z without a bias, accumulated in float32 or wider."""
        cells, table = nn.dtypes.promote_dtype(cells, self.tokens, dtype=self.dtype)
        flat = jnp.matmul(
            cells.reshape(-1, self.features),
            table.T,
            preferred_element_type=jnp.promote_types(cells.dtype, jnp.float32),
        )
        return flat.reshape(*cells.shape[:-1], self.vocab_size)


class FeedForward(nn.Module):
    """W_g relu(W_f x + b_f) + b_g, equation (7).

    Attributes:
      hidden: d_f.
      dropout_rate: dropout rate of the hidden layer.
      dtype: dtype of the products; None promotes inputs and parameters.
      param_dtype: dtype of the parameters.
    """

    hidden: int
    dropout_rate: float = 0.0
    dtype: Dtype | None = None
    param_dtype: Dtype = jnp.float32

    @nn.compact
    def __call__(self, inputs: Float[Array, "B T I"], deterministic: bool = True) -> Float[Array, "B T I"]:
        """Applies both maps to each cell separately."""
        types = {"dtype": self.dtype, "param_dtype": self.param_dtype}
        hidden = nn.relu(Affine(glorot_uniform(), name="hidden", **types)(inputs, self.hidden))
        hidden = nn.Dropout(self.dropout_rate)(hidden, deterministic=deterministic)
        return Affine(glorot_uniform(), name="output", **types)(hidden, inputs.shape[-1])


class _Layer(nn.Module):
    """Common base of the layers; attributes as in `MultiHeadAttention` and `FeedForward`."""

    num_heads: int
    hidden: int
    attention_class: type[MultiHeadAttention]
    attention_init: Initializer = uniform_by_inputs
    dropout_rate: float = 0.0
    attention_implementation: Implementation | None = None
    dtype: Dtype | None = None
    param_dtype: Dtype = jnp.float32

    def setup(self):
        """Creates the sublayers that follow attention."""
        self.feed_forward = FeedForward(self.hidden, self.dropout_rate, self.dtype, self.param_dtype)
        self.feed_forward_norm, self.output_norm = self._norm(), self._norm()
        self.dropout = nn.Dropout(self.dropout_rate)

    @nn.nowrap
    def _attention(self) -> MultiHeadAttention:
        return self.attention_class(
            num_heads=self.num_heads,
            kernel_init=self.attention_init,
            dropout_rate=self.dropout_rate,
            implementation=self.attention_implementation,
            dtype=self.dtype,
            param_dtype=self.param_dtype,
        )

    @nn.nowrap
    def _norm(self) -> LayerNorm:
        return LayerNorm(self.dtype, self.param_dtype)

    def _passed(self, cells, deterministic):
        """Computes LN(h + FF(LN h)), the end of equation (1)."""
        passed = self.feed_forward(self.feed_forward_norm(cells), deterministic)
        return self.output_norm(cells + self.dropout(passed, deterministic=deterministic))


class EncoderLayer(_Layer):
    """h = z + TPMHA(LN z), z' = LN(h + FF(LN h)): equation (1). Attributes are those of all layers."""

    def setup(self):
        """Creates two sublayers and three LayerNorms."""
        super().setup()
        self.attention, self.attention_norm = self._attention(), self._norm()

    def __call__(
        self, cells: Float[Array, "B S I"], mask: Bool[Array, "B S"], deterministic: bool = True
    ) -> Float[Array, "B S I"]:
        """Returns the next layer's cells; none attends to cells where the mask is False."""
        attended = self.attention(
            self.attention_norm(cells), mask=mask[:, None, None, :], deterministic=deterministic
        )
        return self._passed(cells + self.dropout(attended, deterministic=deterministic), deterministic)


@struct.dataclass
class KeysAndValues:
    """Cached keys and values of equation (3).

    Heads come before positions, the layout of the products in attention. Transposing at every step instead
    would take longer than the products.
    """

    keys: Float[Array, "*B H S D"]
    values: Float[Array, "*B H S D"]

    @classmethod
    def keep(cls, keys: Float[Array, "*B S H D"], values: Float[Array, "*B S H D"]) -> "KeysAndValues":
        """Converts keys and values from attention's layout."""
        return cls(jnp.swapaxes(keys, -3, -2), jnp.swapaxes(values, -3, -2))

    def give(self) -> tuple[Float[Array, "*B S H D"], Float[Array, "*B S H D"]]:
        """Returns keys and values in attention's layout."""
        return jnp.swapaxes(self.keys, -3, -2), jnp.swapaxes(self.values, -3, -2)

    def put(self, new: "KeysAndValues", position: Int[Array, ""]) -> "KeysAndValues":
        """Returns a copy with the keys and values of one more position inserted at `position`."""
        update = functools.partial(jax.lax.dynamic_update_slice_in_dim, start_index=position, axis=-2)
        return KeysAndValues(update(self.keys, new.keys), update(self.values, new.values))


class DecoderLayer(_Layer):
    """The encoder's layer with attention to the encoder's cells in between (Appendix D).

    In cross-attention, only the inputs of queries and roles pass through a LayerNorm.
    """

    def setup(self):
        """Creates three sublayers and four LayerNorms."""
        super().setup()
        self.self_attention, self.cross_attention = self._attention(), self._attention()
        self.self_attention_norm, self.cross_attention_norm = self._norm(), self._norm()

    def __call__(
        self,
        cells: Float[Array, "B T I"],
        encoded: Float[Array, "B S I"],
        mask: Bool[Array, "B S"],
        deterministic: bool = True,
    ) -> Float[Array, "B T I"]:
        """Returns the next layer's cells; each attends to cells up to itself and unmasked encoder cells."""
        attended = self.self_attention(
            self.self_attention_norm(cells), is_causal=True, deterministic=deterministic
        )
        cells += self.dropout(attended, deterministic=deterministic)
        context = self.cross_attention.keys_and_values(encoded, encoded)
        return self._after_self_attention(cells, context, mask, deterministic)

    def remember(self, encoded: Float[Array, "B S I"]) -> KeysAndValues:
        """Computes the keys and values of cross-attention from the encoder's cells."""
        return KeysAndValues.keep(*self.cross_attention.keys_and_values(encoded, encoded))

    def step(
        self,
        cells: Float[Array, "B K I"],
        past: KeysAndValues,
        position: Int[Array, ""],
        memory: KeysAndValues,
        mask: Bool[Array, "B S"],
    ) -> tuple[Float[Array, "B K I"], KeysAndValues]:
        """Computes `__call__` for the cells at one position, of K hypotheses for each source.

        Args:
          cells: cells at this position.
          past: [B, K, H, L, D], cache of each hypothesis, filled before `position`.
          position: number of positions filled.
          memory: keys and values of the encoder's cells, shared by all hypotheses.
          mask: True where the source is not padding.

        Returns:
          The next layer's cells, and the cache with this position inserted.
        """
        normed = self.self_attention_norm(cells)[..., None, :]  # [B, K, 1, I]: sequences of length one
        past = past.put(KeysAndValues.keep(*self.self_attention.keys_and_values(normed, normed)), position)
        filled = jnp.arange(past.keys.shape[-2]) <= position
        attended = self.self_attention.attend(normed, *past.give(), mask=filled[None, None, :])
        return self._after_self_attention(cells + attended[..., 0, :], memory.give(), mask, True), past

    def _after_self_attention(self, cells, context, mask, deterministic):
        attended = self.cross_attention.attend(
            self.cross_attention_norm(cells),
            *context,
            mask=mask[:, None, None, :],
            deterministic=deterministic,
        )
        return self._passed(cells + self.dropout(attended, deterministic=deterministic), deterministic)
