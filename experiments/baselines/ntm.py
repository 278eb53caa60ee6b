"""The Neural Turing Machine with content and location addressing: Graves, Wayne and Danihelka (2014).

Axis letters: B batch (any number of leading axes), I input features, F controller features, N locations, W
features of a location, R read heads, H all heads, P shifts.
"""

import jax
import jax.numpy as jnp
from flax import linen as nn
from flax import struct
from flax.typing import Dtype
from jaxtyping import Array, Float, PRNGKeyArray

from experiments.baselines import checks
from experiments.baselines.linear_rnn import unit


def content_weights(
    memory: Float[Array, "*B N W"], key: Float[Array, "*B H W"], beta: Float[Array, "*B H"]
) -> Float[Array, "*B H N"]:
    """w^c = softmax_i(beta K[k, M(i)]) with cosine similarity K, for each head: equations 5 and 6."""
    similarity = jnp.einsum("...nw,...hw->...hn", unit(memory), unit(key))
    return jax.nn.softmax(beta[..., None] * similarity)


def interpolated(
    content: Float[Array, "*B N"], previous: Float[Array, "*B N"], gate: Float[Array, "*B"]
) -> Float[Array, "*B N"]:
    """w^g = g w^c + (1 - g) w_{t-1}: equation 7."""
    return gate[..., None] * content + (1 - gate[..., None]) * previous


def shifted(weights: Float[Array, "*B N"], shifts: Float[Array, "*B P"]) -> Float[Array, "*B N"]:
    """w~(i) = sum_j w^g(j) s(i - j), modulo N: equation 8. The P shifts are -(P-1)/2 to (P-1)/2."""
    count = shifts.shape[-1]
    moved = jnp.stack([jnp.roll(weights, p - count // 2, axis=-1) for p in range(count)], axis=-1)
    return jnp.einsum("...np,...p->...n", moved, shifts)


def sharpened(weights: Float[Array, "*B N"], gamma: Float[Array, "*B"]) -> Float[Array, "*B N"]:
    """w(i) = w~(i)^gamma / sum_j w~(j)^gamma, gamma >= 1: equation 9.

    Computed as softmax(gamma log(w~ + 1e-12)): powers underflow, and have no finite gradient at 0.
    """
    return jax.nn.softmax(gamma[..., None] * jnp.log(weights + 1e-12))


def read(memory: Float[Array, "*B N W"], weights: Float[Array, "*B R N"]) -> Float[Array, "*B R W"]:
    """Computes r = sum_i w(i) M(i) for each head: equation 2."""
    return jnp.einsum("...nw,...rn->...rw", memory, weights)


def write(
    memory: Float[Array, "*B N W"],
    weights: Float[Array, "*B H N"],
    erase: Float[Array, "*B H W"],
    add: Float[Array, "*B H W"],
) -> Float[Array, "*B N W"]:
    """M~(i) = M(i) (1 - w(i) e), then M(i) = M~(i) + w(i) a: equations 3 and 4.

    All heads erase before any adds; the order of heads does not matter.
    """
    kept = jnp.prod(1 - weights[..., None] * erase[..., None, :], axis=-3)
    return memory * kept + jnp.einsum("...hn,...hw->...nw", weights, add)


@struct.dataclass
class NTMCarry:
    """The state of a Neural Turing Machine between two steps.

    Attributes:
      controller: c and h of the LSTM.
      memory: M.
      weights: w of all heads, those that read first.
      reads: r of the heads that read.
    """

    controller: tuple[Float[Array, "*B F"], Float[Array, "*B F"]]
    memory: Float[Array, "*B N W"]
    weights: Float[Array, "*B H N"]
    reads: Float[Array, "*B R W"]


class ContentNTMCell(nn.RNNCellBase):
    """Neural Turing Machine with an LSTM controller: Graves et al. (2014), equations 2 to 9.

    In a step the controller sees the input and the last reads, all heads address M_{t-1} (equations 5 to 9),
    and heads then write M_t (3 and 4) and read it (2). What heads need is affine in the controller's h: keys
    and additions as they are, erase and gate through a sigmoid, beta through a softplus, gamma as
    1 + softplus, shifts through a softmax. The output is h and the reads, F + R W features. The memory starts
    constant (1e-6, as in Collier and Beel 2018) with all heads at location 0.

    `llrnn.NTMCell` moves its heads by location only.

    Attributes:
      features: F.
      num_locations: N.
      location_features: W.
      num_read_heads: R.
      num_write_heads: number of heads that write.
      max_shift: heads move by -max_shift to max_shift locations.
      initial_memory: what each entry of the memory is at the start.
      dtype: dtype of the products with parameters; None takes the widest of inputs and parameters.
      param_dtype: dtype of the parameters, the memory and the weights.
    """

    features: int
    num_locations: int = 32
    location_features: int = 16
    num_read_heads: int = 1
    num_write_heads: int = 1
    max_shift: int = 1
    initial_memory: float = 1e-6
    dtype: Dtype | None = None
    param_dtype: Dtype = jnp.float32

    @property
    def num_feature_axes(self) -> int:
        """1: an input is a vector."""
        return 1

    @nn.nowrap
    def initialize_carry(self, rng: PRNGKeyArray, input_shape: tuple[int, ...]) -> NTMCarry:
        """Returns the state before inputs of shape [*B, I]; the key is not used."""
        batch = input_shape[:-1]
        heads = self.num_read_heads + self.num_write_heads
        first = jax.nn.one_hot(0, self.num_locations, dtype=self.param_dtype)
        zeros = jnp.zeros((*batch, self.features), self.param_dtype)
        memory = (*batch, self.num_locations, self.location_features)
        return NTMCarry(
            controller=(zeros, zeros),
            memory=jnp.full(memory, self.initial_memory, self.param_dtype),
            weights=jnp.broadcast_to(first, (*batch, heads, self.num_locations)),
            reads=jnp.zeros((*batch, self.num_read_heads, self.location_features), self.param_dtype),
        )

    @nn.compact
    def __call__(
        self, carry: NTMCarry, inputs: Float[Array, "*B I"]
    ) -> tuple[NTMCarry, Float[Array, "*B _"]]:
        """Returns the new state and the output.

        Raises:
          ValueError: a field or the memory's shape does not fit.
        """
        self.check(carry, inputs)
        reading, width = self.num_read_heads, self.location_features
        heads = reading + self.num_write_heads
        batch = inputs.shape[:-1]
        types = {"dtype": self.dtype, "param_dtype": self.param_dtype}
        flat = carry.reads.reshape(*batch, reading * width).astype(inputs.dtype)
        controller = nn.OptimizedLSTMCell(self.features, name="controller", **types)
        state, hidden = controller(carry.controller, jnp.concatenate([inputs, flat], axis=-1))
        state = jax.tree.map(lambda new, old: new.astype(old.dtype), state, carry.controller)

        def head(name: str, count: int, size: int) -> Array:
            projected = nn.Dense(count * size, name=name, **types)(hidden)
            return projected.reshape(*batch, count, size).astype(carry.memory.dtype)

        key, gate = head("key", heads, width), nn.sigmoid(head("gate", heads, 1)[..., 0])
        beta = nn.softplus(head("beta", heads, 1)[..., 0])
        shifts = nn.softmax(head("shifts", heads, 2 * self.max_shift + 1))
        gamma = 1 + nn.softplus(head("gamma", heads, 1)[..., 0])
        weights = content_weights(carry.memory, key, beta)  # (5), (6)
        weights = sharpened(shifted(interpolated(weights, carry.weights, gate), shifts), gamma)  # (7) to (9)
        erase = nn.sigmoid(head("erase", self.num_write_heads, width))
        memory = write(
            carry.memory, weights[..., reading:, :], erase, head("add", self.num_write_heads, width)
        )
        reads = read(memory, weights[..., :reading, :])
        output = jnp.concatenate([hidden, reads.reshape(flat.shape).astype(hidden.dtype)], axis=-1)
        return NTMCarry(state, memory, weights, reads), output

    @nn.nowrap
    def check(self, carry: NTMCarry, inputs: Float[Array, "*B I"]) -> None:
        """Raises ValueError for a field or a memory that does not fit."""
        fields = ("features", "num_locations", "location_features", "num_read_heads", "num_write_heads")
        for name in fields:
            checks.at_least(name, getattr(self, name), 1)
        checks.at_least("max_shift", self.max_shift, 0)
        sizes = (*inputs.shape[:-1], self.num_locations, self.location_features)
        checks.shape("carry.memory", carry.memory, "*B N W", sizes)
