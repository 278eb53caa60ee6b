"""The Transformer encoder or decoder on embedded inputs, and its looped form.

Axis letters: B batch, N positions, D features, H heads, K features of a head, T loops.
"""

from typing import Literal, get_args

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from flax.typing import Dtype
from jaxtyping import Array, Bool, Float

from experiments.baselines import checks
from experiments.baselines.layers import Dense, Norm, Stack, attend, join_heads, project_heads
from folnet.positions import t5_buckets

Positions = Literal["none", "rotary", "learned", "t5"]
"""How a Transformer sees the order of its inputs; with "none" it is equivariant to permutations."""

T5_BUCKETS, T5_DISTANCE = 32, 128


def rotate(x: Float[Array, "B N H K"]) -> Float[Array, "B N H K"]:
    """Rotary position embedding: Su et al. (2021), equations 15 and 34.

    Rotates features (2i, 2i + 1) at position n by the angle n 10000^(-2i/K), so that the product of a query
    and a key depends on the distance of their positions. Angles are float32 at least.
    """
    _, length, _, features = x.shape
    wide = jnp.promote_types(x.dtype, jnp.float32)
    frequencies = 1e4 ** (-jnp.arange(0, features, 2, dtype=wide) / features)
    angles = jnp.outer(jnp.arange(length, dtype=wide), frequencies)
    cos, sin = jnp.cos(angles)[None, :, None], jnp.sin(angles)[None, :, None]
    even, odd = x[..., 0::2], x[..., 1::2]
    turned = jnp.stack([even * cos - odd * sin, odd * cos + even * sin], axis=-1)
    return turned.reshape(x.shape).astype(x.dtype)


class SelfAttention(nn.Module):
    """Multi-head self-attention: Vaswani et al. (2017), Section 3.2.2.

    Attributes:
      num_heads: H, a divisor of D.
      rotary: whether queries and keys are rotated by position.
      dtype: dtype of the products; None takes the widest of inputs and parameters.
      param_dtype: dtype of the parameters.
    """

    num_heads: int
    rotary: bool = False
    dtype: Dtype | None = None
    param_dtype: Dtype = jnp.float32

    @nn.compact
    def __call__(
        self,
        inputs: Float[Array, "B N D"],
        mask: Bool[Array, "#B 1 #N N"] | None = None,
        bias: Float[Array, "H N N"] | None = None,
    ) -> Float[Array, "B N D"]:
        """Attends from each position to those that the mask allows; `bias` is added to the logits."""
        types = {"dtype": self.dtype, "param_dtype": self.param_dtype}
        query, key, value = project_heads(inputs, self.num_heads, "query", "key", "value", **types)
        if self.rotary:
            query, key = rotate(query), rotate(key)
        mixed = attend(query, key, value, mask, bias)
        return Dense(inputs.shape[-1], name="output", **types)(join_heads(mixed))


class Transformer(nn.Module):
    """Transformer of Vaswani et al. (2017) on embedded inputs, for sequences or, without positions, for sets.

    Attributes:
      num_layers: number of layers.
      num_heads: H, a divisor of D.
      hidden: width of the feed-forward blocks.
      norm: "pre" (Xiong et al. 2020) or "post" (Vaswani et al. 2017).
      positions: "none", "rotary" (Su et al. 2021), "learned", a vector per position that is added to the
        inputs, or "t5", a bias per head and bucket of distances that all layers share (Raffel et al. 2020,
        Section 2.1; 32 buckets up to a distance of 128).
      max_length: number of learned positions.
      causal: whether position n attends to positions up to n only.
      dtype: dtype of the products; None takes the widest of inputs and parameters. Softmax is float32 at
        least.
      param_dtype: dtype of the parameters.
    """

    num_layers: int
    num_heads: int
    hidden: int
    norm: Norm = "pre"
    positions: Positions = "none"
    max_length: int = 512
    causal: bool = False
    dtype: Dtype | None = None
    param_dtype: Dtype = jnp.float32

    @nn.compact
    def __call__(
        self, inputs: Float[Array, "B N D"], mask: Bool[Array, "B N"] | None = None
    ) -> Float[Array, "B N D"]:
        """Returns the states of the last layer.

        Args:
          inputs: embedded inputs.
          mask: False at padding, which no position attends to. The states there are unspecified.

        Raises:
          ValueError: a field, shape or dtype does not fit.
        """
        inputs, *context = self.prepare(inputs, mask)
        return self.stack()(inputs, *context)

    @nn.nowrap
    def stack(self) -> Stack:
        """Makes the layers, a child module named "stack"."""
        types = {"dtype": self.dtype, "param_dtype": self.param_dtype}
        attention = SelfAttention(self.num_heads, self.positions == "rotary", parent=None, **types)
        return Stack(attention, self.num_layers, self.hidden, self.norm, name="stack", **types)

    @nn.nowrap
    def prepare(
        self, inputs: Float[Array, "B N D"], mask: Bool[Array, "B N"] | None
    ) -> tuple[Float[Array, "B N D"], Bool[Array, "#B 1 #N N"] | None, Float[Array, "H N N"] | None]:
        """Checks the arguments, adds learned positions and makes the mask and the bias of attention."""
        checks.floats("inputs", inputs, "B N D")
        checks.mask(mask, inputs.shape[:2])
        checks.encoder(self.num_layers, self.hidden, self.norm, get_args(Norm))
        checks.at_least("max_length", self.max_length, 1)
        checks.one_of("positions", self.positions, get_args(Positions))
        length, features = inputs.shape[1:]
        checks.divides("num_heads", self.num_heads, "the features of inputs", features)
        if self.positions == "rotary" and features // self.num_heads % 2:
            raise ValueError(
                f"num_heads: got {self.num_heads}, expected an even number of features per head, which "
                f"rotary positions need, out of {features}"
            )
        if self.positions == "learned":
            if length > self.max_length:
                raise ValueError(
                    f"inputs: got {length} positions, expected at most max_length = {self.max_length}"
                )
            shape = (self.max_length, features)
            table = self.param("positions", nn.initializers.normal(0.02), shape, self.param_dtype)
            inputs = inputs + table[None, :length].astype(inputs.dtype)
        allowed = None if mask is None else mask[:, None, None, :]
        if self.causal:
            past = jnp.tril(jnp.ones((1, 1, length, length), bool))
            allowed = past if allowed is None else allowed & past
        bias = None
        if self.positions == "t5":
            places = np.arange(length)
            buckets = t5_buckets(places[None] - places[:, None], T5_BUCKETS, T5_DISTANCE)
            shape = (T5_BUCKETS, self.num_heads)
            table = self.param("distances", nn.initializers.normal(0.02), shape, self.param_dtype)
            bias = jnp.einsum("xyb,bh->hxy", jax.nn.one_hot(buckets, T5_BUCKETS, dtype=table.dtype), table)
        return inputs, allowed, bias


class LoopedTransformer(Transformer):
    """A Transformer applied again and again to its own states, with one set of weights.

    With `input_injection`, Y_0 = 0 and Y_(t+1) = M(Y_t + P) for embedded inputs P: Yang et al., "Looped
    Transformers are Better at Learning Learning Algorithms" (2024). Without it, Y_0 = P and
    Y_(t+1) = M(Y_t): Giannou et al., "Looped Transformers as Programmable Computers" (2023). M is
    `num_layers` layers, with the last LayerNorm of pre-LN in the loop, and learned positions are part of P.

    Attributes:
      num_loops: T in training.
      input_injection: whether the inputs are added before every loop.
    """

    num_loops: int = 4
    input_injection: bool = True

    def __call__(
        self,
        inputs: Float[Array, "B N D"],
        mask: Bool[Array, "B N"] | None = None,
        num_loops: int | None = None,
    ) -> Float[Array, "B N D"]:
        """Returns the states after the last loop.

        Args:
          inputs: embedded inputs.
          mask: False at padding, which no position attends to. The states there are unspecified.
          num_loops: T; None takes the field. A test may loop more often than training did.

        Raises:
          ValueError: a field, shape or dtype does not fit.
        """
        return self.loops(inputs, mask, num_loops)[-1]

    @nn.compact
    def loops(
        self,
        inputs: Float[Array, "B N D"],
        mask: Bool[Array, "B N"] | None = None,
        num_loops: int | None = None,
    ) -> Float[Array, "T B N D"]:
        """Returns the states after each loop: Yang et al. average the loss over several of the last.

        Arguments and errors are those of a call.
        """
        num_loops = self.num_loops if num_loops is None else num_loops
        checks.at_least("num_loops", num_loops, 1)
        inputs, *context = self.prepare(inputs, mask)
        inputs = inputs.astype(jnp.result_type(inputs, self.dtype or self.param_dtype))

        def loop(stack: Stack, states: Array, _: None) -> tuple[Array, Array]:
            states = stack(states + inputs if self.input_injection else states, *context)
            states = states.astype(inputs.dtype)  # a scan's carry keeps its dtype
            return states, states

        start = jnp.zeros_like(inputs) if self.input_injection else inputs
        scan = nn.scan(loop, variable_broadcast="params", split_rngs={"params": False}, length=num_loops)
        return scan(self.stack(), start, None)[1]
