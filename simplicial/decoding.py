"""The cache of a decoder: keys and values of the positions that it has read.

Axis letters: B batch (any number of leading axes), N new positions, W positions kept, G groups (heads of keys
and values), D features of a head.
"""

import jax
import jax.numpy as jnp
from flax import linen as nn
from flax import struct
from jaxtyping import Array, Bool, Int, Shaped

Arrays = tuple[Shaped[Array, "..."], ...]


@struct.dataclass
class Held:
    """What a cache holds after a call.

    Attributes:
      arrays: for each window the last W positions [*B, W, G, D] of its arrays, in any order.
      seen: for each window, which of its W positions have been read.
      valid: False if the call cannot be answered: a prompt after other positions, or a position that should
        see some that are no longer held.
      step: whether the call was for one position, which attends to what is held. Otherwise it is for a prompt
        (or initialises the cache), whose positions attend to each other.
    """

    arrays: tuple[Arrays, ...]
    seen: tuple[Bool[Array, "_"], ...]
    valid: Bool[Array, ""]
    step: bool = struct.field(pytree_node=False, default=True)

    def checked(self, out: Shaped[Array, "..."]) -> Shaped[Array, "..."]:
        """Returns an output of the call, all NaN if it cannot be answered."""
        return jnp.where(self.valid, out, jnp.nan)


class DecodingCache(nn.Module):
    """The last positions of keys and values, in the collection "cache".

    The first call, which initialises the cache, sets the greatest length and stores nothing.

    Attributes:
      windows: how many of the last positions to hold, for each tuple of arrays; None for the greatest length.
    """

    windows: tuple[int | None, ...]

    @nn.compact
    def __call__(self, *arrays: Arrays) -> Held:
        """Appends N positions of arrays [*B, N, G, D] and returns what is held then.

        Raises:
          ValueError: the positions do not fit what the cache was initialised with.
        """
        started = self.has_variable("cache", "position")
        position = self.variable("cache", "position", jnp.zeros, (), jnp.int32)
        new = arrays[0][0].shape[-3]
        buffers = [
            [self.variable("cache", f"array_{w}_{i}", _empty, x, window) for i, x in enumerate(some)]
            for w, (window, some) in enumerate(zip(self.windows, arrays, strict=True))
        ]
        start, step = position.value, started and new == 1
        held, seen, lost = [], [], jnp.bool_(False)
        for window, variables, some in zip(self.windows, buffers, arrays, strict=True):
            size = variables[0].value.shape[-3]
            if started:
                _check(window, size, new, variables, some)
                for variable, x in zip(variables, some, strict=True):
                    variable.value = _written(variable.value, x, start)
            held.append(tuple(variable.value for variable in variables))
            seen.append(jnp.arange(size) < start + (new if started else 0))
            if window is None or window > size:  # what is overwritten should still be seen
                lost |= start + new > size
        if started:
            position.value = start + new
        valid = ~lost if step else start == 0
        return Held(tuple(held), tuple(seen), valid, step)

    def position(self) -> Array:
        """Returns how many positions have been appended."""
        return self.get_variable("cache", "position", default=jnp.int32(0))


def _empty(x: Shaped[Array, "*B N G D"], window: int | None) -> Shaped[Array, "*B W G D"]:
    *batch, length, groups, features = x.shape
    return jnp.zeros((*batch, min(window or length, length), groups, features), x.dtype)


def _check(window: int | None, size: int, new: int, variables: list[nn.Variable], some: Arrays) -> None:
    """Raises ValueError if new positions do not fit a cache."""
    for variable, x in zip(variables, some, strict=True):
        held = variable.value.shape
        if (*x.shape[:-3], *x.shape[-2:]) != (*held[:-3], *held[-2:]):
            raise ValueError(
                f"inputs: got keys or values of shape {x.shape}, expected the batch, groups and features of "
                f"the cache, {held}: initialise it with inputs of this batch"
            )
    if new > size and (window is None or window > size):
        raise ValueError(
            f"inputs: got {new} positions, expected at most {size}, the length that the cache was "
            "initialised with"
        )


def _written(
    held: Shaped[Array, "*B W G D"], x: Shaped[Array, "*B N G D"], start: Int[Array, ""]
) -> Shaped[Array, "*B W G D"]:
    """Writes position p to place p modulo W: one position from `start`, or several from 0."""
    size, new, x = held.shape[-3], x.shape[-3], x.astype(held.dtype)
    if new >= size > 1:
        return jnp.roll(x[..., -size:, :, :], new % size, axis=-3)
    start = start % size if new == 1 else jnp.int32(0)
    return jax.lax.dynamic_update_slice_in_dim(held, x[..., -size:, :, :], start, axis=held.ndim - 3)
