"""The Neural Turing Machine with location addressing (Hu & Murfet 2017, Example 2.10), plain and dihedral.

Axis letters: B batch (any number of leading axes), I input features, D controller features, N locations,
V content of a location.
"""

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
    """A controller with one ring; how its addresses may move is left to `num_moves` and `move`.

    Attributes:
      memory_size: N, the number of locations on the ring.
    """

    memory_size: int = 64

    checks = checked(memory_size=at_least(1))

    @nn.nowrap
    def content_width(self) -> int:
        """V."""
        raise NotImplementedError

    @nn.nowrap
    def num_moves(self) -> int:
        """How many moves the controller has a distribution over."""
        raise NotImplementedError

    @nn.nowrap
    def move(self, address: Array, coefficients: Array, *, dual: bool) -> Array:
        """The superposition of the moves applied to an address in W, or by their duals to one in W*."""
        raise NotImplementedError

    @nn.nowrap
    def initialize_carry(self, rng: PRNGKeyArray, input_shape: tuple[int, ...]) -> NTMState:
        """h_0 = 0, both addresses at location 0, the memory constant, for inputs of shape [*B, I]."""
        self.validate()
        batch = tuple(input_shape[:-1])
        content = jnp.full((self.content_width(), self.memory_size), self.initial_memory, self.param_dtype)
        controller = jnp.zeros((*batch, self.features), self.param_dtype)
        return NTMState(controller, rings.initial_ring(batch, content))

    @nn.nowrap
    def head_widths(self) -> dict[str, int]:
        """The width of every head, in the order of the columns of their product."""
        moves, width, gamma = self.num_moves(), self.content_width(), int(self.sharpen)
        widths = {"read": moves, "write": moves, "add": width, "erase": width * self.erase}
        return {**widths, "read_gamma": gamma, "write_gamma": gamma}

    def written(self, heads: dict[str, Array], inputs: Float[Array, "*B I"]) -> Float[Array, "*B V"]:
        """u, what is written to the memory."""
        raise NotImplementedError

    def seen(
        self, read: Float[Array, "*B V"], controller: Float[Array, "*B D"], heads: dict[str, Array]
    ) -> Float[Array, "*B D"]:
        """What the controller sees of what is read from the memory."""
        raise NotImplementedError

    @nn.compact
    def __call__(
        self, carry: NTMState, inputs: Float[Array, "*B I"]
    ) -> tuple[NTMState, Float[Array, "*B D"]]:
        """One step: (carry, inputs x) to (the new state, h_0')."""
        self.check_inputs(carry.controller, inputs)
        heads = self.project(carry.controller, self.head_widths())
        ring = self.step_ring(carry.ring, heads, self.written(heads, inputs))
        source = ring if self.read == "updated" else carry.ring
        read = rings.read(source.memory, source.read_address)
        controller = self.control(carry.controller, inputs, self.seen(read, carry.controller, heads))
        self.record(ring)
        return NTMState(controller, ring), controller

    @nn.nowrap
    def moved(self, address: Array, heads: dict[str, Array], name: str) -> Array:
        """An address after its move ("read" or "write") and, with `sharpen`, its sharpening."""
        moved = self.move(address, nn.softmax(heads[name]), dual=name == "write")
        return self.sharpened(moved, heads.get(name + "_gamma"))

    @nn.nowrap
    def step_ring(self, ring: rings.Ring, heads: dict[str, Array], add: Array) -> rings.Ring:
        """(2.14): both addresses moved, and the memory written at the new write address."""
        write_address = self.moved(ring.write_address, heads, "write")
        erase = nn.sigmoid(heads["erase"]) if "erase" in heads else None
        memory = rings.write(ring.memory, write_address, add, erase)
        return rings.Ring(self.moved(ring.read_address, heads, "read"), write_address, memory)


class RotatedCell(OneRingCell):
    """A ring whose addresses move by superposed rotations; for `powers` see `NTMCell`."""

    powers: tuple[int, ...] | None = None

    checks = checked(powers=check_powers)

    @nn.nowrap
    def num_moves(self) -> int:
        """How many powers there are."""
        return self.memory_size if self.powers is None else len(self.powers)

    @nn.nowrap
    def move(self, address: Array, coefficients: Array, *, dual: bool) -> Array:
        """sum_i c_i R^i (address), or with R* in the place of R, which on coordinates is R^-1."""
        powers = range(self.memory_size) if self.powers is None else self.powers
        return rings.rotate(address, coefficients, tuple(-power if dual else power for power in powers))


class VectorMemoryCell(OneRingCell):
    """A ring that holds vectors, u = sigma(W_a h_0 + B_a), of which the controller sees V M'(r').

    Attributes:
      memory_width: V, the dimension of what a location holds.
    """

    memory_width: int = 12

    checks = checked(memory_width=at_least(1))

    @nn.nowrap
    def content_width(self) -> int:
        """V."""
        return self.memory_width

    def written(self, heads: dict[str, Array], inputs: Float[Array, "*B I"]) -> Float[Array, "*B V"]:
        """sigma(W_a h_0 + B_a)."""
        return self.add_activation(heads["add"])

    def seen(
        self, read: Float[Array, "*B V"], controller: Float[Array, "*B D"], heads: dict[str, Array]
    ) -> Float[Array, "*B D"]:
        """V M'(r')."""
        return self.dense("content", self.features, use_bias=False)(read)


class NTMCell(RotatedCell, VectorMemoryCell):
    """The NTM with location addressing: two addresses that move by superpositions of rotations, one memory.

    With q = softmax(W_q h_0 + B_q), s = softmax(W_s h_0 + B_s) and u = relu(W_a h_0 + B_a),

        r' = sum_i q_i R^i (r)     w' = sum_i s_i (R*)^i (w)     M' = M + w' (x) u
        h_0' = sigma(V M'(r') + H_0 h_0 + U_0 x + B)                                       (2.15)

    The draft's W h has the whole state for h; the heads here see its part h_0, as in the authors' code.

    The output of a step is h_0'. The addresses of every step are there on request, [T, *B, N]:

        rnn = nn.RNN(NTMCell(64), variable_axes={"intermediates": 0})
        output, state = rnn.apply(variables, x, mutable=["intermediates"])
        (read_address,) = state["intermediates"]["cell"]["read_address"]     # likewise "write_address"

    Attributes:
      powers: the powers of R that the controller may choose from at a step; None is all of 0..N-1, as in the
        paper. The authors' experiments use (0, -1, 1).
    """


class DihedralNTMCell(VectorMemoryCell):
    """The NTM whose addresses move by superposed binary words over R (digit 0) and the reflection R' (digit
    1).

    From the authors' later draft. The command types are bint_W and bint_W*; 0 and 1 are sent to R* and R'*
    for the write address. Digits apply left to right, so that "101" is R^-1.

    Attributes:
      words: the binary words whose superposition moves an address.
    """

    words: tuple[str, ...] = ("", "0", "1", "101")

    checks = checked(words=check_words)

    @nn.nowrap
    def num_moves(self) -> int:
        """How many words there are."""
        return len(self.words)

    @nn.nowrap
    def move(self, address: Array, coefficients: Array, *, dual: bool) -> Array:
        """The superposed words applied to an address."""
        return rings.move_by_symmetries(address, coefficients, self.words, step=-1 if dual else 1)
