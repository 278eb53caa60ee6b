"""Memory rings as pure functions: superposed moves of an address, sharpening, reading, writing.

Hu & Murfet, "Linear logic and recurrent neural networks" (2017), Example 2.10; Graves et al., "Neural Turing Machines"
(2014), section 3. Axis letters: B batch (any number of leading axes), N locations, V content, P moves.

A ring has N locations around a circle. R takes location a to a + 1; the reflection takes a to -a. An address is a vector
r in W = R^N (read) or w in its dual W* (write), a memory a linear map M : W -> V, stored as [N, V] with row j = M(j).
"""

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jaxtyping import Array, Float

# Up to this many moves are summed roll by roll, which fuses into one loop; more go through a circulant matrix.
_FEW = 8


@struct.dataclass
class Ring:
    """The state of one ring.

    Attributes:
      read_address: r, non-negative with sum 1 as long as its moves are softmaxes.
      write_address: w, likewise.
      memory: M, one row a location.
    """

    read_address: Float[Array, "*B N"]
    write_address: Float[Array, "*B N"]
    memory: Float[Array, "*B N V"]


def initial_ring(batch_shape: tuple[int, ...], content: Float[Array, "N V"]) -> Ring:
    """A ring holding `content`, both of its addresses at location 0."""
    locations = content.shape[0]
    address = jnp.broadcast_to(jax.nn.one_hot(0, locations, dtype=content.dtype), (*batch_shape, locations))
    return Ring(address, address, jnp.broadcast_to(content, (*batch_shape, *content.shape)))


def rotate(
    address: Float[Array, "*B N"], coefficients: Float[Array, "*B P"], powers: tuple[int, ...]
) -> Float[Array, "*B N"]:
    """sum_k c_k R^(power_k) (address): the update of the read address in (2.14), R a roll and never a matrix.

    The dual rotation R* of the write address is R^-1 on coordinates, since (R* w)(j) = w(R j) = w_(j+1): hand in the
    powers negated.

    Args:
      address: a vector over the locations.
      coefficients: c, the weight of each power.
      powers: the powers themselves, any integers; they count modulo N.
    """
    if coefficients.shape[-1] != len(powers):
        raise ValueError(
            f"coefficients must have one entry for each of the {len(powers)} powers, got shape {coefficients.shape}"
        )
    locations = address.shape[-1]
    if len(powers) <= _FEW:
        return sum(
            (coefficients[..., k, None] * jnp.roll(address, p, axis=-1) for k, p in enumerate(powers)),
            start=jnp.zeros_like(address),
        )
    if tuple(p % locations for p in powers) != tuple(range(locations)):
        # Sort the weights onto the N distinct rotations: a product with a constant 0-1 matrix.
        onto = np.zeros((len(powers), locations))
        onto[np.arange(len(powers)), np.asarray(powers) % locations] = 1
        coefficients = coefficients @ jnp.asarray(onto, coefficients.dtype)
    return jnp.einsum("...i,...ij->...j", coefficients, rotations(address))


def rotations(address: Float[Array, "*B N"]) -> Float[Array, "*B N N"]:
    """All N rotations of an address, row i being R^i (address).

    Entry [i, j] is address[j - i] = s[i (N - 1) + j] for the N-periodic sequence s, so the first N - 1 columns are s cut into
    rows of N - 1. Built so, its gradient is a sum; a gather's would be a scatter, which is slow on a CPU.
    """
    locations = address.shape[-1]
    tiled = jnp.broadcast_to(address[..., None, :], (*address.shape[:-1], locations - 1, locations))
    columns = tiled.reshape(*address.shape[:-1], locations, locations - 1)
    return jnp.concatenate([columns, jnp.flip(address, axis=-1)[..., None]], axis=-1)


def reflect(address: Float[Array, "*B N"]) -> Float[Array, "*B N"]:
    """R' (address), R' taking location a to -a; its own dual on coordinates."""
    return jnp.roll(jnp.flip(address, axis=-1), 1, axis=-1)


def sharpen(address: Float[Array, "*B N"], gamma: Float[Array, "*B 1"]) -> Float[Array, "*B N"]:
    """address^gamma, normalised (Graves et al., equation 9), gamma >= 1.

    Computed as a softmax of gamma log(address + 1e-6): the power itself underflows and its gradient is NaN at 0.
    """
    return jax.nn.softmax(gamma * jnp.log(address + 1e-6), axis=-1)


def read(memory: Float[Array, "*B N V"], address: Float[Array, "*B N"]) -> Float[Array, "*B V"]:
    """M(r) = sum_j r_j M(j)."""
    return jnp.einsum("...n,...nv->...v", address, memory)


def write(
    memory: Float[Array, "*B N V"],
    address: Float[Array, "*B N"],
    add: Float[Array, "*B V"],
    erase: Float[Array, "*B V"] | None = None,
) -> Float[Array, "*B N V"]:
    """M + w (x) add, or M - M * (w (x) erase) + w (x) add.

    The erasure is gated by the address, as in Graves et al., equations 3-4, and in the authors' experiments; the later draft's
    (1 - e) o M would erase every location at every step.
    """
    kept = memory if erase is None else memory * (1 - address[..., :, None] * erase[..., None, :])
    return kept + address[..., :, None] * add[..., None, :]
