"""What a TP-Transformer is made of, besides attention: embedding, feed-forward, encoder and decoder layers.

All of it is the plain Transformer's as well, with `binds_roles` off. Layers follow the released code:
LayerNorm before every sublayer, its result added to what came in, and one more LayerNorm of the sum at each
layer's end.

Axis letters: B batch, T positions (of the target, in a decoder), S source positions, L positions a cache has
room for, K hypotheses side by side, I features, V vocabulary, H heads, D features of a head.
"""

import functools
import math
from typing import Self

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from flax import struct
from flax.typing import Dtype
from jax.nn.initializers import Initializer, glorot_uniform, normal
from jaxtyping import Array, Bool, Float, Int

from tp_transformer.attention import (
    Affine,
    Implementation,
    MultiHeadAttention,
    TPMultiHeadAttention,
    uniform_by_inputs,
)


def sinusoids(length: int, features: int) -> np.ndarray | jax.Array:
    """Positional representations p_t of equation (2), float32 [length, features].

    sin and cos alternate, at wavelengths from 2 pi to 20000 pi: those of Vaswani et al. (2017). Where the
    length is a symbol, under `jax.export`, they are computed in float32 when it is known.

    Raises:
      ValueError: an odd number of features, which pairs of sin and cos cannot fill.
    """
    if features % 2:
        raise ValueError(f"features is {features}, expected an even number: half are sines, half cosines")
    numpy = np if isinstance(length, int) else jnp
    angles = numpy.arange(length)[:, None] * 1e4 ** (-np.arange(0, features, 2) / features)[None]
    waves = numpy.stack([numpy.sin(angles), numpy.cos(angles)], axis=-1)
    return waves.reshape(length, features).astype(np.float32)


class Embedding(nn.Module):
    """Symbols to cells, equation (2), and cells to logits, equation (8): one matrix for both.

    A symbol's row is looked up by a product with one-hot rows, whose gradient is a product as well: it needs
    no scattered sums, which are slow and, on GPUs, of another order every time. The vocabulary is small.

    Attributes:
      vocab_size: V.
      features: I.
      binds_roles: z = e * r, or z = e.
      dropout_rate: how much of z is dropped.
      dtype: type of products and of z; None is `param_dtype`.
      param_dtype: type of the parameters.
    """

    vocab_size: int
    features: int
    binds_roles: bool
    dropout_rate: float = 0.0
    dtype: Dtype | None = None
    param_dtype: Dtype = jnp.float32

    def setup(self):
        """E and, where there are roles, W_p and b_p."""
        # The paper draws E from N(0, 1) and multiplies by sqrt(d) all the same; what ran is N(0, 1/d).
        init = normal(self.features**-0.5)
        self.tokens = self.param("tokens", init, (self.vocab_size, self.features), self.param_dtype)
        if self.binds_roles:
            # The paper's N(1, 1) is, as it ran, N(0, 1/d) with a 1 added to the role.
            self.role = Affine(init, dtype=self.dtype, param_dtype=self.param_dtype)
        self.dropout = nn.Dropout(self.dropout_rate)

    def __call__(
        self, tokens: Int[Array, "B T"], positions: Float[Array, "#T I"], *, deterministic: bool = True
    ) -> Float[Array, "B T I"]:
        """z_t,0 of symbols at positions whose sinusoids are given."""
        # In the parameters' own precision: a TPU or GPU would round a table in float32 to fewer bits.
        one_hot = jax.nn.one_hot(tokens.reshape(-1), self.vocab_size, dtype=self.tokens.dtype)
        rows = jnp.matmul(one_hot, self.tokens, precision=jax.lax.Precision.HIGHEST)
        e = rows.reshape(*tokens.shape, self.features) * math.sqrt(self.features)
        e = (e + jnp.asarray(positions, e.dtype)[None]).astype(self.dtype or self.param_dtype)
        z = e * (self.role(e, self.features) + 1) if self.binds_roles else e
        return self.dropout(z, deterministic=deterministic)

    def logits(self, cells: Float[Array, "B T I"]) -> Float[Array, "B T V"]:
        """E^T z without a bias, summed in float32 at least."""
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
      dropout_rate: how much of the hidden layer is dropped.
      dtype: type of the products; None is the widest of inputs and parameters.
      param_dtype: type of the parameters.
    """

    hidden: int
    dropout_rate: float = 0.0
    dtype: Dtype | None = None
    param_dtype: Dtype = jnp.float32

    @nn.compact
    def __call__(self, inputs: Float[Array, "B T I"], deterministic: bool = True) -> Float[Array, "B T I"]:
        """Each cell by itself."""
        types = {"dtype": self.dtype, "param_dtype": self.param_dtype}
        hidden = nn.relu(Affine(glorot_uniform(), name="hidden", **types)(inputs, self.hidden))
        hidden = nn.Dropout(self.dropout_rate)(hidden, deterministic=deterministic)
        return Affine(glorot_uniform(), name="output", **types)(hidden, inputs.shape[-1])


class _Layer(nn.Module):
    """Attributes of both kinds of layers; those of `MultiHeadAttention`, `FeedForward` and `Embedding`."""

    num_heads: int
    hidden: int
    binds_roles: bool
    attention_init: Initializer = uniform_by_inputs
    dropout_rate: float = 0.0
    attention_implementation: Implementation | None = None
    dtype: Dtype | None = None
    param_dtype: Dtype = jnp.float32

    def setup(self):
        """What comes after attention."""
        self.feed_forward = FeedForward(self.hidden, self.dropout_rate, self.dtype, self.param_dtype)
        self.feed_forward_norm, self.output_norm = self._norm(), self._norm()
        self.dropout = nn.Dropout(self.dropout_rate)

    @nn.nowrap
    def _attention(self) -> MultiHeadAttention:
        return (TPMultiHeadAttention if self.binds_roles else MultiHeadAttention)(
            num_heads=self.num_heads,
            kernel_init=self.attention_init,
            dropout_rate=self.dropout_rate,
            implementation=self.attention_implementation,
            dtype=self.dtype,
            param_dtype=self.param_dtype,
        )

    @nn.nowrap
    def _norm(self) -> nn.LayerNorm:
        # Not E[x^2] - E[x]^2: a TP-embedding's cells are in the hundreds and would lose half their digits.
        return nn.LayerNorm(1e-5, self.dtype, self.param_dtype, use_fast_variance=False)

    def _passed(self, cells, deterministic):
        """LN(h + FF(LN h)): the end of equation (1)."""
        passed = self.feed_forward(self.feed_forward_norm(cells), deterministic)
        return self.output_norm(cells + self.dropout(passed, deterministic=deterministic))


class EncoderLayer(_Layer):
    """h = z + TPMHA(LN z), z' = LN(h + FF(LN h)): equation (1). Attributes are those of all layers."""

    def setup(self):
        """Two sublayers and three LayerNorms."""
        super().setup()
        self.attention, self.attention_norm = self._attention(), self._norm()

    def __call__(
        self, cells: Float[Array, "B S I"], mask: Bool[Array, "B S"], deterministic: bool = True
    ) -> Float[Array, "B S I"]:
        """The next layer's cells; none attends to those that the mask leaves out."""
        attended = self.attention(
            self.attention_norm(cells), mask=mask[:, None, None, :], deterministic=deterministic
        )
        return self._passed(cells + self.dropout(attended, deterministic=deterministic), deterministic)


@struct.dataclass
class KeysAndValues:
    """Keys and values of equation (3), of cells that attention will be asked about again.

    Heads come before positions, as in the products of attention: kept like this, nothing has to be turned
    around at every step, which would take longer than the products.
    """

    keys: Float[Array, "*B H S D"]
    values: Float[Array, "*B H S D"]

    @classmethod
    def keep(cls, keys: Float[Array, "*B S H D"], values: Float[Array, "*B S H D"]) -> Self:
        """Keys and values of attention."""
        return cls(jnp.swapaxes(keys, -3, -2), jnp.swapaxes(values, -3, -2))

    def give(self) -> tuple[Float[Array, "*B S H D"], Float[Array, "*B S H D"]]:
        """Keys and values as attention takes them."""
        return jnp.swapaxes(self.keys, -3, -2), jnp.swapaxes(self.values, -3, -2)

    def put(self, new: "KeysAndValues", position: Int[Array, ""]) -> "KeysAndValues":
        """With those of one more position in their place."""
        update = functools.partial(jax.lax.dynamic_update_slice_in_dim, start_index=position, axis=-2)
        return KeysAndValues(update(self.keys, new.keys), update(self.values, new.values))


class DecoderLayer(_Layer):
    """As the encoder's, with attention to the encoder's cells in between (Appendix D).

    That attention has a LayerNorm on its queries and roles only.
    """

    def setup(self):
        """Three sublayers and four LayerNorms."""
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
        """The next layer's cells: each sees those up to itself, and the encoder's that the mask allows."""
        attended = self.self_attention(
            self.self_attention_norm(cells), is_causal=True, deterministic=deterministic
        )
        cells += self.dropout(attended, deterministic=deterministic)
        context = self.cross_attention.keys_and_values(encoded, encoded)
        return self._after_self_attention(cells, context, mask, deterministic)

    def remember(self, encoded: Float[Array, "B S I"]) -> KeysAndValues:
        """What cross-attention needs of the encoder's cells."""
        return KeysAndValues.keep(*self.cross_attention.keys_and_values(encoded, encoded))

    def step(
        self,
        cells: Float[Array, "B K I"],
        past: KeysAndValues,
        position: Int[Array, ""],
        memory: KeysAndValues,
        mask: Bool[Array, "B S"],
    ) -> tuple[Float[Array, "B K I"], KeysAndValues]:
        """`__call__` of the cells at one position, which are those of K hypotheses about each source.

        Args:
          cells: at this position.
          past: [B, K, H, L, D] of each hypothesis; filled before `position`.
          position: how many positions are filled.
          memory: of the encoder's cells, which all hypotheses share.
          mask: True where the source is not padding.

        Returns:
          The next layer's cells, and the past with this position in it.
        """
        normed = self.self_attention_norm(cells)[..., None, :]  # [B, K, 1, I]: a sequence of one, for each
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
