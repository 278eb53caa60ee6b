"""A call of 2-simplicial attention on TPUs in pieces of the batch and of the heads, one after the other.

The kernels read arrays with [N, M], [M, M] and [M, E, F] entries a group (an example and a head). For all
groups at once they can be a hundred times the arguments; a piece has as many groups as fit into `ROOM`, and
XLA can leave its arrays in the chip's vector memory.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

from kernels.arrays import divisor, filled, round_up
from kernels.two_simplicial.reference import Config
from kernels.two_simplicial.tpu_layout import LANES, SUBLANES

ROOM = 1 << 24  # bytes of the largest arrays of a piece
FEWEST = 2  # groups of a piece where there are so many: one for each core of a chip

# The axis of the batch and that of the heads of each array, None where it has none.
GRADIENTS = ((0, 2), (0, 2), (0, 2), (0, 2), (None, 0))
ARRAYS = (*GRADIENTS, (0, None))
RESULTS = ((0, 2), (0, 1))


@dataclass(frozen=True)
class Cut:
    """How a call is cut.

    Attributes:
      batch: examples of the call.
      heads: heads of the call.
      examples: examples of a piece.
      piece_heads: heads of a piece, a divisor of `heads`.
    """

    batch: Any
    heads: int
    examples: Any
    piece_heads: int

    def shapes(self, arrays: Any) -> tuple[Any, ...]:
        """The shapes of a piece of `reference.two_simplicial_attention`'s arrays."""

        def of_piece(x, axes):
            if x is None:
                return None
            shape = list(x.shape)
            for axis, size in zip(axes, (self.examples, self.piece_heads), strict=True):
                if axis is not None and shape[axis] != 1:
                    shape[axis] = size
            return jax.ShapeDtypeStruct(tuple(shape), x.dtype)

        return tuple(of_piece(x, axes) for x, axes in zip(arrays, ARRAYS, strict=True))

    def run(
        self,
        call: Callable[..., tuple[Array, ...]],
        arrays: tuple[Any, ...],
        inputs: tuple[tuple[int | None, int | None], ...],
        outputs: tuple[tuple[int | None, int], ...],
    ) -> tuple[Array, ...]:
        """Calls `call` with the pieces of `arrays` and joins what it returns.

        `inputs` and `outputs` are the axes of each. An output that has none for the batch is the float32
        gradient of the array in its place, and is summed over the batch.
        """
        if (self.examples, self.piece_heads) == (self.batch, self.heads):
            return call(*arrays)
        pieces = -(-self.batch // self.examples)
        arrays = tuple(
            # Examples of zeros fill the last piece: nothing of them is in the results, nor in the sums.
            x if x is None or axes[0] is None or x.shape[0] == 1 else filled(x, 0, pieces * self.examples)
            for x, axes in zip(arrays, inputs, strict=True)
        )

        def of_heads(head):
            own = [self._piece(x, 1, axes, head) for x, axes in zip(arrays, inputs, strict=True)]

            def add(sums, example):
                found = call(*(self._piece(x, 0, axes, example) for x, axes in zip(own, inputs, strict=True)))
                sums = [s if s is None else s + x for s, x in zip(sums, found, strict=True)]
                return sums, [x if s is None else None for s, x in zip(sums, found, strict=True)]

            sums = [
                jax.lax.full_like(x, 0, jnp.float32) if batch is None else None
                for x, (batch, _) in zip(own, outputs, strict=False)
            ]
            sums, found = jax.lax.scan(add, sums, jnp.arange(pieces))
            return [s if x is None else _joined(x, 0)[: self.batch] for s, x in zip(sums, found, strict=True)]

        found = jax.lax.map(of_heads, jnp.arange(self.heads // self.piece_heads))
        return tuple(_joined(x, axis) for x, (_, axis) in zip(found, outputs, strict=True))

    def _piece(self, x: Any, which: int, axes: tuple[int | None, int | None], index: Array) -> Any:
        """Piece `index` along the axis of the batch (`which` 0) or of the heads (1)."""
        axis, size = axes[which], (self.examples, self.piece_heads)[which]
        if x is None or axis is None or x.shape[axis] == 1:
            return x
        return jax.lax.dynamic_slice_in_dim(x, index * size, size, axis)


def cut_to(config: Config, arrays: Any) -> Cut:
    """Cuts a call into pieces of at least `FEWEST` groups, whose largest arrays fit into `ROOM` if they can.

    A batch whose size is a symbol (`jax.export`) is not cut.
    """
    query, key1, _, value, bilinear, _ = arrays
    (batch, n, heads, _), m = query.shape, key1.shape[1]
    numbers = m * round_up(value.shape[3], SUBLANES) * round_up(bilinear.shape[1], LANES)
    if config.logit == "unsigned":
        numbers += 2 * m * (round_up(n, LANES) + round_up(m, LANES))
    most = max(FEWEST, ROOM // (4 * numbers))
    if not isinstance(batch, int) or batch * heads <= most:
        return Cut(batch, heads, batch, heads)
    piece_heads = divisor(heads, most)
    pieces = -(-batch // max(1, most // piece_heads))
    return Cut(batch, heads, -(-batch // pieces), piece_heads)


def _joined(x: Array, axis: int) -> Array:
    """Merges the first axis, of pieces, into the axis that was cut."""
    x = jnp.moveaxis(x, 0, axis)
    return x.reshape(*x.shape[:axis], -1, *x.shape[axis + 2 :])
