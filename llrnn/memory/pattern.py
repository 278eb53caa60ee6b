"""NTMs whose read address is moved by programs on other rings: pattern, multiple pattern, polynomial step.

From the authors' later draft (sections "Pattern NTM", "Multiple pattern NTM", "Polynomial step NTM") and
their code.
Axis letters: B batch (any number of leading axes), I input features, D controller features, N locations,
V content of a location.

Ring 1 holds content, the other rings hold programs: a location of ring 2, for instance, holds a superposition
of numerals, the step by which the read address of ring 1 moves. The controller moves all other addresses.
"""

import jax
import jax.numpy as jnp
from flax import linen as nn
from flax import struct
from flax.typing import Initializer
from jaxtyping import Array, Float, PRNGKeyArray

from llrnn.cells.base import at_least, checked
from llrnn.memory import rings
from llrnn.memory.base import MemoryCell, check_powers, check_words


@struct.dataclass
class RingsState:
    """The state (h_0, r_1, w_1, M_1, r_2, w_2, M_2, ..).

    Attributes:
      controller: h_0.
      rings: the ring of content, then the rings of programs.
    """

    controller: Float[Array, "*B D"]
    rings: tuple[rings.Ring, ...]


class ProgrammedCell(MemoryCell):
    """A controller, a ring of content and rings of programs that move its read address.

    r_1' = g d + (1 - g) f, where d is r_1 moved by the controller, f is r_1 moved by the programs read at the
    previous addresses of their rings, and g = sigmoid(W_g h_0 + B_g). Subclasses define the programs and
    their effect by `program_widths` and `follow`.

    Attributes:
      memory_size: N of ring 1.
      memory_width: V of ring 1.
      program_size: number of locations of each ring of programs.
      powers: the powers of the rotation among which the controller chooses, on every ring.
      direct: use the gate g. False sets g = 0, the draft's own equation, with which the authors found their
        experiments "completely broken".
      direct_bias: initial bias of the gate.
      squash: apply a softmax to each location of a ring of programs before reading, so that the program read
        is a convex combination and the controller writes raw logits. False reads the draft's own M_2(r_2);
        with `sharpen` the add_activation must then have no negative values, since an address would.
    """

    memory_size: int = 128
    memory_width: int = 20
    program_size: int = 20
    powers: tuple[int, ...] = (0, -1, 1)
    direct: bool = True
    direct_bias: float = 1.0
    squash: bool = True

    checks = checked(
        memory_size=at_least(1), memory_width=at_least(1), program_size=at_least(1), powers=check_powers
    )

    @nn.nowrap
    def validate(self) -> None:
        """Raises ValueError, naming the field, if the value of a field is not allowed."""
        super().validate()
        if self.sharpen and not self.squash:
            with jax.ensure_compile_time_eval():
                least = float(jnp.min(self.add_activation(jnp.linspace(-8, 8, 65))))
            if least < 0:
                raise ValueError(
                    f"add_activation: got a function with the value {least:.3g}, expected none below 0 with "
                    "sharpen=True and squash=False, since negative weights of an address have no powers"
                )

    @nn.nowrap
    def program_widths(self) -> tuple[int, ...]:
        """Returns, for each ring of programs, the number of programs that a location superposes."""
        raise NotImplementedError

    @nn.nowrap
    def follow(self, address: Float[Array, "*B N"], programs: list[Array]) -> Float[Array, "*B N"]:
        """Moves the read address of ring 1 by the superpositions read from the rings of programs."""
        raise NotImplementedError

    @nn.nowrap
    def initialize_carry(self, rng: PRNGKeyArray, input_shape: tuple[int, ...]) -> RingsState:
        """Returns the initial state for inputs of shape [*B, I].

        h_0 = 0, addresses are at location 0, ring 1 is constant, and every location of the other rings holds
        its first program.
        """
        self.validate()
        batch = tuple(input_shape[:-1])
        contents = [jnp.full((self.memory_width, self.memory_size), self.initial_memory, self.param_dtype)]
        for width in self.program_widths():
            first = jax.nn.one_hot(0, width, dtype=self.param_dtype)
            contents.append(jnp.broadcast_to(first[:, None], (width, self.program_size)))
        start = tuple(rings.initial_ring(batch, content) for content in contents)
        return RingsState(jnp.zeros((*batch, self.features), self.param_dtype), start)

    @nn.nowrap
    def head_bias_init(self) -> Initializer:
        """Returns `bias_init`, except that the last bias, the gate's, starts at `direct_bias`."""
        if not self.direct:
            return self.bias_init

        def init(key: PRNGKeyArray, shape: tuple[int, ...], dtype=jnp.float32) -> Array:
            return self.bias_init(key, shape, dtype).at[-1].set(self.direct_bias)

        return init

    @nn.compact
    def __call__(
        self, carry: RingsState, inputs: Float[Array, "*B I"]
    ) -> tuple[RingsState, Float[Array, "*B D"]]:
        """Runs one step: maps the carry and the inputs x to the new state and h_0'."""
        self.check_inputs(carry.controller, inputs)
        widths, gamma, moves = {}, int(self.sharpen), len(self.powers)
        for number, width in enumerate((self.memory_width, *self.program_widths()), start=1):
            widths |= {
                f"read_{number}": moves if number > 1 or self.direct else 0,
                f"write_{number}": moves,
                f"add_{number}": width,
                f"erase_{number}": width * self.erase,
                f"read_gamma_{number}": gamma,
                f"write_gamma_{number}": gamma,
            }
        heads = self.project(carry.controller, {**widths, "gate": int(self.direct)})

        programs = [
            rings.read(nn.softmax(ring.memory, axis=-2) if self.squash else ring.memory, ring.read_address)
            for ring in carry.rings[1:]
        ]
        followed = self.follow(carry.rings[0].read_address, programs)
        new = []
        for number, ring in enumerate(carry.rings, start=1):
            add = heads[f"add_{number}"]
            if number == 1 or not self.squash:
                add = self.add_activation(add)
            new.append(self.step_ring(number, ring, heads, add, followed if number == 1 else None))
        source = new[0] if self.read == "updated" else carry.rings[0]
        read = rings.read(source.memory, source.read_address)
        seen = self.dense("content", self.features, use_bias=False)(read)
        controller = self.control(carry.controller, inputs, seen)
        for number, ring in enumerate(new, start=1):
            self.record(ring, "" if number == 1 else f"_{number}")
        if self.direct:
            self.sow("intermediates", "gate", nn.sigmoid(heads["gate"]))
        return RingsState(controller, tuple(new)), controller

    @nn.nowrap
    def step_ring(
        self,
        number: int,
        ring: rings.Ring,
        heads: dict[str, Array],
        add: Float[Array, "*B V"],
        followed: Float[Array, "*B N"] | None,
    ) -> rings.Ring:
        """Moves and writes one ring; `followed` is, for ring 1, the read address moved by the programs."""
        backwards = tuple(-power for power in self.powers)
        erase = nn.sigmoid(heads[f"erase_{number}"]) if self.erase else None
        write_address = rings.rotate(ring.write_address, nn.softmax(heads[f"write_{number}"]), backwards)
        write_address = self.sharpened(write_address, heads.get(f"write_gamma_{number}"))
        if followed is not None and not self.direct:
            read_address = followed
        else:
            read_address = rings.rotate(ring.read_address, nn.softmax(heads[f"read_{number}"]), self.powers)
            if followed is not None:
                gate = nn.sigmoid(heads["gate"])
                read_address = gate * read_address + (1 - gate) * followed
        read_address = self.sharpened(read_address, heads.get(f"read_gamma_{number}"))
        return rings.Ring(read_address, write_address, rings.write(ring.memory, write_address, add, erase))


class PatternNTMCell(ProgrammedCell):
    """r_1' = sum_j (M_2 r_2)_j R^(power_j) (r_1): a second ring holds the steps of the first read address.

    Attributes:
      program_powers: the powers of R that a location of ring 2 superposes.
    """

    program_powers: tuple[int, ...] = (0, 1, 2)

    checks = checked(program_powers=check_powers)

    @nn.nowrap
    def program_widths(self) -> tuple[int, ...]:
        """Returns the number of numerals that ring 2 superposes."""
        return (len(self.program_powers),)

    @nn.nowrap
    def follow(self, address: Float[Array, "*B N"], programs: list[Array]) -> Float[Array, "*B N"]:
        """Computes sum_j l_j R^(power_j) (r_1)."""
        return rings.rotate(address, programs[0], self.program_powers)


class MultiplePatternNTMCell(PatternNTMCell):
    """Two patterns and a ring of binary words that chooses between them: r_1' = feed(l, m, k)(R)(r_1).

    With l and m read from rings 2 and 3 (numerals) and k from ring 4 (binary words), and X = sum_i l_i R^i,
    Y = sum_j m_j R^j, the step is sum_k k_k [[word_k]](X, Y). If a digit occurs at most once in every word,
    and l, m sum to 1, this is the draft's sum_ijk l_i m_j k_k R^(a_k i + b_k j), where word k has a_k zeros
    and b_k ones. For other words the draft's formula does not hold: its `feed` promotes a term with a linear
    int, which needs to be !int; each occurrence of a digit then samples again, so that 00 is X^2 and not
    sum_i l_i R^(2i).

    Attributes:
      words: the binary words that a location of ring 4 superposes.
    """

    words: tuple[str, ...] = ("0", "1")

    checks = checked(words=check_words)

    @nn.nowrap
    def program_widths(self) -> tuple[int, ...]:
        """Returns the number of numerals on rings 2 and 3, and of words on ring 4."""
        return (len(self.program_powers), len(self.program_powers), len(self.words))

    @nn.nowrap
    def follow(self, address: Float[Array, "*B N"], programs: list[Array]) -> Float[Array, "*B N"]:
        """Computes sum_k k_k [[word_k]](X, Y) (r_1)."""
        first, second, choice = programs
        return rings.move_by_words(
            address,
            choice,
            self.words,
            lambda vector: rings.rotate(vector, first, self.program_powers),
            lambda vector: rings.rotate(vector, second, self.program_powers),
        )


class PolynomialStepNTMCell(ProgrammedCell):
    """A third ring holds programs !int -o int, which apply to the step on the second ring.

    With p = sum_i l_i [[i]] read from ring 2 and mu from ring 3, r_1' = sum_j mu_j [[a_j]](p)(R) (r_1), where
    x^2 on a superposition is the composition p(p(R)); see `rings.move_by_polynomials`.

    Attributes:
      max_power: the highest of the numerals 0..max_power that a location of ring 2 superposes.
      polynomials: the programs of ring 3, each by its natural coefficients (c_0, c_1, ..); x and x^2 by
        default.
    """

    max_power: int = 2
    polynomials: tuple[tuple[int, ...], ...] = ((0, 1), (0, 0, 1))

    checks = checked(max_power=at_least(1))

    @nn.nowrap
    def validate(self) -> None:
        """Raises ValueError, naming the field, if the value of a field is not allowed."""
        super().validate()
        natural = all(c >= 0 for polynomial in self.polynomials for c in polynomial)
        if not self.polynomials or not natural:
            raise ValueError(
                f"polynomials: got {self.polynomials}, expected at least one tuple of coefficients, each at "
                "least 0"
            )

    @nn.nowrap
    def program_widths(self) -> tuple[int, ...]:
        """Returns the number of numerals on ring 2 and of programs on ring 3."""
        return (self.max_power + 1, len(self.polynomials))

    @nn.nowrap
    def follow(self, address: Float[Array, "*B N"], programs: list[Array]) -> Float[Array, "*B N"]:
        """Computes sum_j mu_j [[a_j]](p)(R) (r_1)."""
        step, choice = programs
        return rings.move_by_polynomials(address, choice, self.polynomials, step)
