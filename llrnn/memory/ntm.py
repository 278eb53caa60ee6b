"""The Neural Turing Machine with location addressing (Hu & Murfet 2017, Example 2.10).

Axis letters: B batch (any number of leading axes), I input features, D controller features, N locations, V content.
"""

import dataclasses
from collections.abc import Callable

import jax.numpy as jnp
from flax import linen as nn
from flax import struct
from flax.typing import Dtype, Initializer
from jaxtyping import Array, Float, PRNGKeyArray

from llrnn.memory import rings

READS = ("updated", "previous")


@struct.dataclass
class NTMState:
    """The state h = (h_0, r, w, M) of (2.14).

    Attributes:
      controller: h_0.
      ring: the addresses r, w and the memory M.
    """

    controller: Float[Array, "*B D"]
    ring: rings.Ring


class MemoryCell(nn.RNNCellBase):
    """What the cells with a memory share: the controller's fields, its projections and its evolution equation.

    The controller predicts everything from h_0, through one product for all heads.

    Attributes:
      features: D, the dimension of the controller's state h_0.
      memory_size: N, the number of locations on the ring.
      memory_width: V, the dimension of what a location holds.
      powers: the powers of R that the controller may choose from at a step; None is all of 0..N-1, as in the paper. The
        authors' experiments use (0, -1, 1).
      activation: sigma of (2.15); relu in the paper, tanh in the authors' experiments.
      add_activation: of the vector u written; relu in the paper.
      erase: also predict e = sigmoid(..) and write M - M * (w (x) e) + w (x) u.
      sharpen: sharpen addresses by gamma = 1 + relu(..) after every move.
      read: "updated": the controller reads M'(r'), as in (2.15). "previous": M(r), as in the authors' code.
      initial_memory: what every entry of the memory is at the start.
      kernel_init, recurrent_kernel_init, bias_init: initialisers of the maps U_0, V and the heads; of H_0; of biases.
      dtype: dtype of the products; None takes it from inputs and parameters. The state keeps `param_dtype`.
      param_dtype: dtype of the parameters and of the carried state.
    """

    features: int
    memory_size: int = 64
    memory_width: int = 12
    powers: tuple[int, ...] | None = None
    activation: Callable[[Array], Array] = nn.relu
    add_activation: Callable[[Array], Array] = nn.relu
    erase: bool = False
    sharpen: bool = False
    read: str = "updated"
    initial_memory: float = 1e-6
    kernel_init: Initializer = nn.initializers.lecun_normal()
    recurrent_kernel_init: Initializer = nn.initializers.orthogonal()
    bias_init: Initializer = nn.initializers.zeros_init()
    dtype: Dtype | None = None
    param_dtype: Dtype = jnp.float32

    @property
    def num_feature_axes(self) -> int:
        """One: an input is a vector."""
        return 1

    @nn.nowrap
    def validate(self) -> None:
        """Raises ValueError, naming the field, when the fields do not make a cell."""
        for name in ("features", "memory_size", "memory_width"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.powers is not None and not self.powers:
            raise ValueError("powers must be None (all) or name at least one power of the rotation, got ()")
        if self.read not in READS:
            raise ValueError(f"read must be one of {', '.join(READS)}, got {self.read!r}")

    @nn.nowrap
    def rotation_powers(self) -> tuple[int, ...]:
        """The powers of R that the controller chooses from."""
        return tuple(range(self.memory_size)) if self.powers is None else tuple(self.powers)

    def project(self, controller: Float[Array, "*B D"], **widths: int) -> dict[str, Float[Array, "*B _"]]:
        """W h_0 + B for every named head at once, as one product, cut by `widths`; heads of width 0 are left out."""
        widths = {name: width for name, width in widths.items() if width}
        together = nn.Dense(
            sum(widths.values()),
            kernel_init=self.kernel_init,
            bias_init=self.bias_init,
            dtype=self.dtype,
            param_dtype=self.param_dtype,
            name="heads",
        )(controller).astype(controller.dtype)  # addresses and memory are kept in the state's precision
        heads, start = {}, 0
        for name, width in widths.items():
            heads[name] = together[..., start : start + width]
            start += width
        return heads

    def control(
        self,
        controller: Float[Array, "*B D"],
        inputs: Float[Array, "*B I"],
        read: Float[Array, "*B V"] | None,
        extra: Float[Array, "*B D"] | None = None,
    ) -> Float[Array, "*B D"]:
        """sigma(V read + H_0 h_0 + U_0 x + B + extra) of (2.15)."""
        shared = {"dtype": self.dtype, "param_dtype": self.param_dtype}
        recurrent = nn.Dense(
            self.features, use_bias=False, kernel_init=self.recurrent_kernel_init, name="hidden", **shared
        )
        driven = nn.Dense(
            self.features, kernel_init=self.kernel_init, bias_init=self.bias_init, name="input", **shared
        )
        total = recurrent(controller) + driven(inputs)
        if read is not None:
            total += nn.Dense(
                self.features, use_bias=False, kernel_init=self.kernel_init, name="read", **shared
            )(read)
        if extra is not None:
            total += extra
        return self.activation(total).astype(controller.dtype)

    @nn.nowrap
    def moved(self, address: Array, logits: Array, gamma: Array | None, powers: tuple[int, ...]) -> Array:
        """softmax(logits) over the powers applied to an address, then sharpened if there is a gamma."""
        moved = rings.rotate(address, nn.softmax(logits), powers)
        return moved if gamma is None else rings.sharpen(moved, 1 + nn.relu(gamma))

    @nn.nowrap
    def check_inputs(self, controller: Array, inputs: Array) -> None:
        """Raises ValueError when the fields, the state or the inputs do not fit each other."""
        self.validate()
        if controller.shape != (*inputs.shape[:-1], self.features):
            raise ValueError(
                f"carry.controller must be [*B, {self.features}] with the batch axes of inputs, "
                f"got {controller.shape} and {inputs.shape}"
            )


class NTMCell(MemoryCell):
    """The NTM with location addressing: two addresses that move by superpositions of rotations, one memory.

    q = softmax(W_q h_0 + B_q), s = softmax(W_s h_0 + B_s), u = relu(W_a h_0 + B_a), and then
    r' = sum_i q_i R^i (r), w' = sum_i s_i (R*)^i (w), M' = M + w' (x) u, h_0' = sigma(V M'(r') + H_0 h_0 + U_0 x + B).
    The draft writes W h with h the whole state; the heads here see the controller's part h_0, as in the authors' code.

    The output of a step is h_0'. The addresses of every step are there on request, [T, *B, N]:

        rnn = nn.RNN(NTMCell(64), variable_axes={"intermediates": 0})
        output, state = rnn.apply(variables, x, mutable=["intermediates"])
        (read_address,) = state["intermediates"]["cell"]["read_address"]     # likewise "write_address"
    """

    @nn.nowrap
    def initialize_carry(self, rng: PRNGKeyArray, input_shape: tuple[int, ...]) -> NTMState:
        """h_0 = 0, both addresses at location 0, the memory constant.

        Args:
          rng: not used.
          input_shape: the shape [*B, I] of one input.
        """
        self.validate()
        batch = tuple(input_shape[:-1])
        content = jnp.full((self.memory_size, self.memory_width), self.initial_memory, self.param_dtype)
        return NTMState(
            jnp.zeros((*batch, self.features), self.param_dtype), rings.initial_ring(batch, content)
        )

    @nn.compact
    def __call__(
        self, carry: NTMState, inputs: Float[Array, "*B I"]
    ) -> tuple[NTMState, Float[Array, "*B D"]]:
        """One step: (carry, inputs x) to (the new state, h_0')."""
        self.check_inputs(carry.controller, inputs)
        powers, ring = self.rotation_powers(), carry.ring
        heads = self.project(
            carry.controller,
            read=len(powers),
            write=len(powers),
            add=self.memory_width,
            erase=self.memory_width * self.erase,
            read_gamma=int(self.sharpen),
            write_gamma=int(self.sharpen),
        )
        new = write_step(self, ring, heads, powers)
        new = dataclasses.replace(
            new, read_address=self.moved(ring.read_address, heads["read"], heads.get("read_gamma"), powers)
        )
        source = new if self.read == "updated" else ring
        controller = self.control(carry.controller, inputs, rings.read(source.memory, source.read_address))
        self.sow("intermediates", "read_address", new.read_address)
        self.sow("intermediates", "write_address", new.write_address)
        return NTMState(controller, new), controller


def write_step(
    cell: MemoryCell, ring: rings.Ring, heads: dict[str, Array], powers: tuple[int, ...]
) -> rings.Ring:
    """The ring with its write address moved by powers of R* and its memory written there."""
    duals = tuple(-power for power in powers)
    write_address = cell.moved(ring.write_address, heads["write"], heads.get("write_gamma"), duals)
    erase = nn.sigmoid(heads["erase"]) if "erase" in heads else None
    memory = rings.write(ring.memory, write_address, cell.add_activation(heads["add"]), erase)
    return dataclasses.replace(ring, write_address=write_address, memory=memory)
