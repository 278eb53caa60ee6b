"""Recurrent networks with a stack or a tape, which moves past the one place that is read and written.

The Stack-RNN (Joulin & Mikolov, "Inferring algorithmic patterns with stack-augmented recurrent nets", 2015)
and the Tape-RNN, as Deletang et al., "Neural networks and the Chomsky hierarchy" (2022), define them. Both
are linear logic RNNs: `llrnn.logic.stack_master` and `llrnn.logic.tape_master` are their proofs.

A memory is M : W -> V, stored as [V, N], and location 0 is the one that is read and written. A step predicts
actions a = softmax(W_a h_0 + B_a) and what to write, u = W_u h_0 + B_u, updates the memory, reads its
location 0, and then computes h_0' = sigma(C M'_0 + H h_0 + U x + B). The authors compute h_0' first and
update after it; this is the same recurrence, cut at another place, except that the first step here may
already write.

A stack with a location for each step is exact at any length. A tape is a ring, and jumps are longer than one
place: a few of them may lead round a ring that has a location for each step, so that what a Tape-RNN computes
depends on the number of locations. For lengths to compare, give them one (`with_room`).

Axis letters: B batch (any number of leading axes), I input features, D controller features, N locations,
V content of a location.
"""

import jax
import jax.numpy as jnp
from flax import linen as nn
from flax import struct
from jaxtyping import Array, Float, Int, PRNGKeyArray

from llrnn.cells.base import at_least, checked
from llrnn.memory.base import ControlledCell


@struct.dataclass
class StackState:
    """The state of a Stack-RNN.

    Attributes:
      controller: h_0.
      memory: M, the top of the stack at location 0.
    """

    controller: Float[Array, "*B D"]
    memory: Float[Array, "*B V N"]


@struct.dataclass
class TapeState:
    """The state of a Tape-RNN.

    Attributes:
      controller: h_0.
      memory: M, the head at location 0.
      length: the number of symbols of the input so far, the length of a jump.
    """

    controller: Float[Array, "*B D"]
    memory: Float[Array, "*B V N"]
    length: Int[Array, "*B"]


class _OnePlaceCell(ControlledCell):
    """A memory whose location 0 is read and written.

    Attributes:
      memory_size: N, the number of locations; parameters do not depend on it (`with_room`).
      memory_width: V, the dimension of the content of a location.
    """

    memory_size: int = 64
    memory_width: int = 8

    checks = checked(memory_size=at_least(1), memory_width=at_least(1))

    @nn.nowrap
    def with_room(self, steps: int) -> "_OnePlaceCell":
        """Returns the cell with so many locations that `steps` moves by one do not return to the first.

        `steps` may be a symbolic dimension of `jax.export`. The ring of a Tape-RNN exported so depends on the
        length that it is given.
        """
        return self.clone(memory_size=jax.core.max_dim(self.memory_size, steps + 1))

    @nn.nowrap
    def initial(self, input_shape: tuple[int, ...]) -> tuple[Float[Array, "*B D"], Float[Array, "*B V N"]]:
        """Returns h_0 and M, both 0, for inputs of shape [*B, I]."""
        self.validate()
        batch = tuple(input_shape[:-1])
        memory = jnp.zeros((*batch, self.memory_width, self.memory_size), self.param_dtype)
        return jnp.zeros((*batch, self.features), self.param_dtype), memory

    def predicted(
        self, controller: Float[Array, "*B D"], actions: int
    ) -> tuple[Float[Array, "{actions} *B 1 1"], Float[Array, "*B V"]]:
        """Returns the coefficients of the actions, one after the other, and u."""
        found = self.project(controller, {"actions": actions, "write": self.memory_width})
        coefficients = nn.softmax(found["actions"])
        self.sow("intermediates", "actions", coefficients)
        return jnp.moveaxis(coefficients, -1, 0)[..., None, None], found["write"]

    def controlled(
        self,
        controller: Float[Array, "*B D"],
        inputs: Float[Array, "*B I"],
        memory: Float[Array, "*B V N"],
    ) -> Float[Array, "*B D"]:
        """Computes h_0'."""
        seen = self.dense("content", self.features, use_bias=False)(memory[..., 0])
        return self.control(controller, inputs, seen)


class StackRNNCell(_OnePlaceCell):
    """The Stack-RNN of Joulin & Mikolov (2015): M' = a_0 push(M, u) + a_1 pop(M) + a_2 M.

    Pushing moves all content one place down and drops the last; popping moves it up, with zeros from below.
    """

    @nn.nowrap
    def initialize_carry(self, rng: PRNGKeyArray, input_shape: tuple[int, ...]) -> StackState:
        """Returns the initial state, 0, for inputs of shape [*B, I]."""
        return StackState(*self.initial(input_shape))

    @nn.compact
    def __call__(
        self, carry: StackState, inputs: Float[Array, "*B I"]
    ) -> tuple[StackState, Float[Array, "*B D"]]:
        """Runs one step: maps the carry and the inputs x to the new state and h_0'."""
        self.check_inputs(carry.controller, inputs)
        (push, pop, keep), written = self.predicted(carry.controller, 3)
        memory = carry.memory
        pushed = jnp.concatenate([written[..., None].astype(memory.dtype), memory[..., :-1]], axis=-1)
        popped = jnp.concatenate([memory[..., 1:], jnp.zeros_like(memory[..., :1])], axis=-1)
        memory = (push * pushed + pop * popped + keep * memory).astype(memory.dtype)
        controller = self.controlled(carry.controller, inputs, memory)
        return StackState(controller, memory), controller


class TapeRNNCell(_OnePlaceCell):
    """The Tape-RNN of Deletang et al. (2022): it writes u at the head and then moves the tape, a ring.

    The five moves are to stay, one place to the left, one to the right, and jumps of `length` places to the
    left and to the right. `length` counts the symbols of a string that ends with empty symbols, the last
    input features (`llrnn.tasks.StringTask`). Once the string has ended it is the length of the input, as in
    the authors' definition, which knows it from the start.

    Attributes:
      empty_symbols: the number of empty symbols: 2 with `StringTask.computation`.
    """

    empty_symbols: int = 1

    checks = checked(empty_symbols=at_least(1))

    @nn.nowrap
    def initialize_carry(self, rng: PRNGKeyArray, input_shape: tuple[int, ...]) -> TapeState:
        """Returns the initial state, 0, for inputs of shape [*B, I]."""
        return TapeState(*self.initial(input_shape), jnp.zeros(input_shape[:-1], jnp.int32))

    @nn.compact
    def __call__(
        self, carry: TapeState, inputs: Float[Array, "*B I"]
    ) -> tuple[TapeState, Float[Array, "*B D"]]:
        """Runs one step: maps the carry and the inputs x to the new state and h_0'."""
        self.check_inputs(carry.controller, inputs)
        (stay, left, right, jump_left, jump_right), written = self.predicted(carry.controller, 5)
        is_symbol = (inputs[..., -self.empty_symbols :] != 1).all(axis=-1)
        length = carry.length + is_symbol.astype(carry.length.dtype)
        tape = carry.memory.at[..., 0].set(written.astype(carry.memory.dtype))
        memory = (
            stay * tape
            + left * jnp.roll(tape, -1, axis=-1)
            + right * jnp.roll(tape, 1, axis=-1)
            + jump_left * _moved(tape, length)
            + jump_right * _moved(tape, -length)
        ).astype(tape.dtype)
        controller = self.controlled(carry.controller, inputs, memory)
        return TapeState(controller, memory, length), controller


def _moved(tape: Float[Array, "*B V N"], length: Int[Array, "*B"]) -> Float[Array, "*B V N"]:
    """Returns each tape with its content `length` places further to the left."""
    start = length[..., None, None]
    places = (start + jnp.arange(tape.shape[-1]).reshape((1,) * length.ndim + (1, -1))) % tape.shape[-1]
    return jnp.take_along_axis(tape, places, axis=-1)
