"""The Neural Turing Machine with location addressing (Hu & Murfet 2017, Example 2.10), plain and dihedral.

Axis letters: B batch (any number of leading axes), I input features, D controller features, N locations,
V content of a location, P moves.
"""

from typing import Literal

import jax.numpy as jnp
from flax import linen as nn
from flax import struct
from jaxtyping import Array, Float, PRNGKeyArray

from llrnn.cells.base import at_least, checked
from llrnn.memory import rings
from llrnn.memory.base import MemoryCell, check_powers, check_words


@struct.dataclass
class NTMState:
    """The state h = (h_0, r, w, M) of Example 2.10.

    Attributes:
      controller: h_0.
      ring: the addresses r, w and the memory M.
    """

    controller: Float[Array, "*B D"]
    ring: rings.Ring


class OneRingCell(MemoryCell):
    """A controller with one ring; subclasses define the moves of its addresses by `num_moves` and `move`.

    Attributes:
      memory_size: N, the number of locations on the ring.
    """

    memory_size: int = 64

    checks = checked(memory_size=at_least(1))

    @nn.nowrap
    def content_width(self) -> int:
        """Returns V, the size of the content of a location."""
        raise NotImplementedError

    @nn.nowrap
    def num_moves(self) -> int:
        """Returns P, the number of moves over which the controller predicts a distribution."""
        raise NotImplementedError

    @nn.nowrap
    def move(
        self, address: Float[Array, "*B N"], coefficients: Float[Array, "*B P"], *, dual: bool
    ) -> Float[Array, "*B N"]:
        """Applies the superposition of the moves to an address in W, or of their duals to one in W*."""
        raise NotImplementedError

    @nn.nowrap
    def initialize_carry(self, rng: PRNGKeyArray, input_shape: tuple[int, ...]) -> NTMState:
        """Returns the initial state for inputs of shape [*B, I].

        h_0 = 0, both addresses are at location 0, and the memory is constant.
        """
        self.validate()
        batch = tuple(input_shape[:-1])
        content = jnp.full((self.content_width(), self.memory_size), self.initial_memory, self.param_dtype)
        controller = jnp.zeros((*batch, self.features), self.param_dtype)
        return NTMState(controller, rings.initial_ring(batch, content))

    @nn.nowrap
    def head_widths(self) -> dict[str, int]:
        """Returns the width of every head, in the order of the columns of their product."""
        moves, width, gamma = self.num_moves(), self.content_width(), int(self.sharpen)
        widths = {"read": moves, "write": moves, "add": width, "erase": width * self.erase}
        return {**widths, "read_gamma": gamma, "write_gamma": gamma}

    def written(self, heads: dict[str, Array], inputs: Float[Array, "*B I"]) -> Float[Array, "*B V"]:
        """Returns u, the content to write to the memory."""
        raise NotImplementedError

    def seen(
        self, read: Float[Array, "*B V"], controller: Float[Array, "*B D"], heads: dict[str, Array]
    ) -> Float[Array, "*B D"]:
        """Maps the content that was read from the memory to the controller's features."""
        raise NotImplementedError

    @nn.compact
    def __call__(
        self, carry: NTMState, inputs: Float[Array, "*B I"]
    ) -> tuple[NTMState, Float[Array, "*B D"]]:
        """Runs one step: maps the carry and the inputs x to the new state and h_0'."""
        self.check_inputs(carry.controller, inputs)
        heads = self.project(carry.controller, self.head_widths())
        ring = self.step_ring(carry.ring, heads, self.written(heads, inputs))
        source = ring if self.read == "updated" else carry.ring
        read = rings.read(source.memory, source.read_address)
        controller = self.control(carry.controller, inputs, self.seen(read, carry.controller, heads))
        self.record(ring)
        return NTMState(controller, ring), controller

    @nn.nowrap
    def moved(
        self, address: Float[Array, "*B N"], heads: dict[str, Array], name: Literal["read", "write"]
    ) -> Float[Array, "*B N"]:
        """Returns an address after its move and, with `sharpen`, sharpened."""
        moved = self.move(address, nn.softmax(heads[name]), dual=name == "write")
        return self.sharpened(moved, heads.get(name + "_gamma"))

    @nn.nowrap
    def step_ring(self, ring: rings.Ring, heads: dict[str, Array], add: Float[Array, "*B V"]) -> rings.Ring:
        """Moves both addresses and writes the memory at the new write address (2.14)."""
        write_address = self.moved(ring.write_address, heads, "write")
        erase = nn.sigmoid(heads["erase"]) if "erase" in heads else None
        memory = rings.write(ring.memory, write_address, add, erase)
        return rings.Ring(self.moved(ring.read_address, heads, "read"), write_address, memory)


class RotatedCell(OneRingCell):
    """A ring whose addresses move by superpositions of rotations; see `NTMCell` for `powers`."""

    powers: tuple[int, ...] | None = None

    checks = checked(powers=check_powers)

    @nn.nowrap
    def num_moves(self) -> int:
        """Returns the number of powers."""
        return self.memory_size if self.powers is None else len(self.powers)

    @nn.nowrap
    def move(
        self, address: Float[Array, "*B N"], coefficients: Float[Array, "*B P"], *, dual: bool
    ) -> Float[Array, "*B N"]:
        """Computes sum_i c_i R^i (address); `dual` replaces R by R*, which on coordinates is R^-1."""
        powers = range(self.memory_size) if self.powers is None else self.powers
        return rings.rotate(address, coefficients, tuple(-power if dual else power for power in powers))


class VectorMemoryCell(OneRingCell):
    """A ring of vectors: it writes u = sigma(W_a h_0 + B_a), and the controller receives V M'(r').

    Attributes:
      memory_width: V, the dimension of the content of a location.
    """

    memory_width: int = 12

    checks = checked(memory_width=at_least(1))

    @nn.nowrap
    def content_width(self) -> int:
        """Returns V, the field `memory_width`."""
        return self.memory_width

    def written(self, heads: dict[str, Array], inputs: Float[Array, "*B I"]) -> Float[Array, "*B V"]:
        """Computes u = sigma(W_a h_0 + B_a)."""
        return self.add_activation(heads["add"])

    def seen(
        self, read: Float[Array, "*B V"], controller: Float[Array, "*B D"], heads: dict[str, Array]
    ) -> Float[Array, "*B D"]:
        """Computes V M'(r'), the memory's part of (2.15)."""
        return self.dense("content", self.features, use_bias=False)(read)


class NTMCell(RotatedCell, VectorMemoryCell):
    """The NTM with location addressing: two addresses that move by superpositions of rotations, one memory.

    With q = softmax(W_q h_0 + B_q), s = softmax(W_s h_0 + B_s) and u = relu(W_a h_0 + B_a),

        r' = sum_i q_i R^i (r)     w' = sum_i s_i (R*)^i (w)     M' = M + w' (x) u
        h_0' = sigma(V M'(r') + H_0 h_0 + U_0 x + B)                                       (2.15)

    In the draft the heads read the whole state h; here they read its part h_0, as in the authors' code.

    The output of a step is h_0'. The addresses of every step, [T, *B, N], are available on request:

        rnn = nn.RNN(NTMCell(64), variable_axes={"intermediates": 0})
        output, state = rnn.apply(variables, x, mutable=["intermediates"])
        (read_address,) = state["intermediates"]["cell"]["read_address"]     # likewise "write_address"

    Attributes:
      powers: the powers of R among which the controller chooses at each step; None for all of 0..N-1, as in
        the paper. The authors' experiments use (0, -1, 1).
    """


class DihedralNTMCell(VectorMemoryCell):
    """The NTM whose addresses move by superpositions of binary words over rotation and reflection.

    From the authors' later draft. The digit 0 is the rotation R, 1 the reflection R', and for the write
    address R* and R'*: the command types are bint_W and bint_W*. Digits apply left to right, so that "101" is
    R^-1.

    Attributes:
      words: the binary words among which the controller chooses at each step.
    """

    words: tuple[str, ...] = ("", "0", "1", "101")

    checks = checked(words=check_words)

    @nn.nowrap
    def num_moves(self) -> int:
        """Returns the number of words."""
        return len(self.words)

    @nn.nowrap
    def move(
        self, address: Float[Array, "*B N"], coefficients: Float[Array, "*B P"], *, dual: bool
    ) -> Float[Array, "*B N"]:
        """Applies the superposition of the words to an address."""
        return rings.move_by_symmetries(address, coefficients, self.words, step=-1 if dual else 1)
