"""Memory rings as pure functions: superposed moves of an address, sharpening, reading, writing.

Hu & Murfet, "Linear logic and recurrent neural networks" (2017), Example 2.10, and the authors' later draft;
Graves et al., "Neural Turing Machines" (2014), section 3.
Axis letters: B batch (any number of leading axes), N locations, V content, P moves, L numerals.

A ring has N locations on a circle. The rotation R maps location a to a + 1, the reflection R' maps a to -a.
An address is a vector r in W = R^N (read) or w in its dual W* (write). A memory is a linear map M : W -> V,
stored as its matrix [V, N], whose column j is the content of location j. (With the longer axis last the
update takes half the time on a CPU.)
"""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jaxtyping import Array, Float

from llrnn.cells.recurrent import power_superposition

# Up to this many rotations are summed one by one, which fuses into one loop; more are computed by an FFT.
_FEW = 8


@struct.dataclass
class Ring:
    """The state of one ring.

    Attributes:
      read_address: r; non-negative with sum 1 if the coefficients of its moves are.
      write_address: w, likewise.
      memory: M, one column per location.
    """

    read_address: Float[Array, "*B N"]
    write_address: Float[Array, "*B N"]
    memory: Float[Array, "*B V N"]


def initial_ring(batch_shape: tuple[int, ...], content: Float[Array, "V N"]) -> Ring:
    """Returns a ring that holds `content`, with both addresses at location 0."""
    locations = content.shape[-1]
    address = jnp.broadcast_to(jax.nn.one_hot(0, locations, dtype=content.dtype), (*batch_shape, locations))
    return Ring(address, address, jnp.broadcast_to(content, (*batch_shape, *content.shape)))


def rotate(
    address: Float[Array, "*B N"], coefficients: Float[Array, "*B P"], powers: tuple[int, ...]
) -> Float[Array, "*B N"]:
    """Computes sum_k c_k R^(power_k) (address), the update of the read address in (2.14).

    For a write address negate the powers: its dual rotation R* is R^-1 on coordinates, since
    (R* w)(j) = w(R j) = w_(j+1). Powers may be any integers; they count modulo N. R is a roll, so no matrix
    is formed.

    Raises:
      ValueError: the number of coefficients is not the number of powers.
    """
    if coefficients.shape[-1] != len(powers):
        raise ValueError(
            f"coefficients: got shape {coefficients.shape}, expected [*B, {len(powers)}] for the powers "
            f"{powers}"
        )
    locations = address.shape[-1]
    if len(powers) <= _FEW:
        return sum(
            (coefficients[..., k, None] * jnp.roll(address, p, axis=-1) for k, p in enumerate(powers)),
            start=jnp.zeros_like(address),
        )
    if tuple(p % locations for p in powers) != tuple(range(locations)):
        # Sum the coefficients of equal rotations: a product with a constant 0-1 matrix.
        onto = np.zeros((len(powers), locations))
        onto[np.arange(len(powers)), np.asarray(powers) % locations] = 1
        coefficients = coefficients @ jnp.asarray(onto, coefficients.dtype)
    # A sum over all rotations is a circular convolution. Its rounding error, about 1e-7, has either sign.
    wide = jnp.promote_types(jnp.result_type(address, coefficients), jnp.float32)
    spectrum = jnp.fft.rfft(address.astype(wide)) * jnp.fft.rfft(coefficients.astype(wide))
    return jnp.fft.irfft(spectrum, n=locations).astype(address.dtype)


def reflect(address: Float[Array, "*B N"]) -> Float[Array, "*B N"]:
    """Computes R' (address), where R' maps location a to -a; it is its own dual on coordinates."""
    return jnp.roll(jnp.flip(address, axis=-1), 1, axis=-1)


def dihedral_element(word: str, step: int = 1) -> tuple[bool, int]:
    """Returns the symmetry a -> k + a or a -> k - a that a binary word denotes, as (reflected, k).

    Digits apply left to right: 0 rotates by `step`, 1 reflects. The dual space has step = -1 (see `rotate`).
    """
    reflected, shift = False, 0
    for digit in word:
        if digit == "0":
            shift += step
        else:
            reflected, shift = not reflected, -shift
    return reflected, shift


def move_by_symmetries(
    address: Float[Array, "*B N"], coefficients: Float[Array, "*B P"], words: tuple[str, ...], step: int = 1
) -> Float[Array, "*B N"]:
    """Computes sum_k c_k [[word_k]](R, R') (address) for binary words over the dihedral group of the ring.

    The digit 0 is the rotation R by `step` (1 for a read address; -1 for a write address, on which R* acts),
    1 the reflection R'. Each word is reduced to a group element first, so its length does not affect the
    cost.
    """
    elements = [dihedral_element(word, step) for word in words]
    total = jnp.zeros_like(address)
    for reflected, start in ((False, address), (True, reflect(address))):
        chosen = [k for k, element in enumerate(elements) if element[0] == reflected]
        if chosen:
            weights = jnp.stack([coefficients[..., k] for k in chosen], axis=-1)
            total += rotate(start, weights, tuple(elements[k][1] for k in chosen))
    return total


def move_by_words(
    address: Float[Array, "*B N"],
    coefficients: Float[Array, "*B P"],
    words: tuple[str, ...],
    zero: Callable[[Array], Array],
    one: Callable[[Array], Array],
) -> Float[Array, "*B N"]:
    """Computes sum_k c_k [[word_k]](X, Y) (address) for linear operators X (digit 0) and Y (digit 1).

    Digits apply left to right; a prefix that several words share is applied once.
    """
    reached = {"": address}
    for word in words:
        for end in range(1, len(word) + 1):
            if word[:end] not in reached:
                reached[word[:end]] = (zero if word[end - 1] == "0" else one)(reached[word[: end - 1]])
    return sum(
        (coefficients[..., k, None] * reached[word] for k, word in enumerate(words)),
        start=jnp.zeros_like(address),
    )


def move_by_polynomials(
    address: Float[Array, "*B N"],
    coefficients: Float[Array, "*B P"],
    polynomials: tuple[tuple[int, ...], ...],
    step: Float[Array, "*B L"],
) -> Float[Array, "*B N"]:
    """Computes sum_j mu_j [[a_j]](p)(R) (address) for programs a_j : !int -o int and p = sum_i l_i [[i]].

    A polynomial a(x) = c_0 + c_1 x + c_2 x^2 + .. over the naturals is the program that adds and multiplies
    numerals. Sums compose operators and products compose programs, so that

        [[a]](p)(X) = X^(c_0) p(X)^(c_1) p(p(X))^(c_2) ..           with p(X) = sum_i l_i X^i.

    For a single numeral p = [[s]] this is R^a(s). For a superposition, x^2 is the composition p(p(R)); the
    draft reads it as a step of s^2, which holds for a single numeral only.

    Args:
      address: the address to move.
      coefficients: mu.
      polynomials: (c_0, c_1, ..) of each a_j.
      step: l_0 .. l_(L-1).
    """

    def iterate(times: int, vector: Array) -> Array:
        """Applies the operator p(p(..R..)), with p composed `times` times, to a vector."""
        if times == 0:
            return jnp.roll(vector, 1, axis=-1)
        if times == 1:
            return rotate(vector, step, tuple(range(step.shape[-1])))
        return power_superposition(step, lambda inner: iterate(times - 1, inner), vector)

    total = jnp.zeros_like(address)
    for k, polynomial in enumerate(polynomials):
        moved = address
        for degree, count in enumerate(polynomial):
            for _ in range(count):
                moved = iterate(degree, moved)
        total += coefficients[..., k, None] * moved
    return total


def sharpen(address: Float[Array, "*B N"], gamma: Float[Array, "*B 1"]) -> Float[Array, "*B N"]:
    """Computes address^gamma, normalised to sum 1, for address >= 0, gamma >= 1 (Graves et al., equation 9).

    It is the softmax of gamma log(address + 1e-6): the power itself would underflow, and its gradient at 0
    is NaN.
    """
    return jax.nn.softmax(gamma * jnp.log(address + 1e-6), axis=-1)


def read(memory: Float[Array, "*B V N"], address: Float[Array, "*B N"]) -> Float[Array, "*B V"]:
    """Computes M(r) = sum_j r_j M(j)."""
    return jnp.einsum("...vn,...n->...v", memory, address)


def write(
    memory: Float[Array, "*B V N"],
    address: Float[Array, "*B N"],
    add: Float[Array, "*B V"],
    erase: Float[Array, "*B #V"] | None = None,
) -> Float[Array, "*B V N"]:
    """Computes M + w (x) add, or M - M * (w (x) erase) + w (x) add; `erase` may be one number per memory.

    The address gates the erasure, as in Graves et al., equations 3-4, and in the authors' experiments; the
    later draft's (1 - e) o M would erase every location at every step.
    """
    if erase is None:
        return memory + _outer(address, add)
    return _overwritten(memory, address, add, erase)


@functools.partial(jax.checkpoint, prevent_cse=False)
def _overwritten(memory: Array, address: Array, add: Array, erase: Array) -> Array:
    """Writes with erasure; what is kept of the memory is computed again for the gradient, not stored."""
    return memory * (1 - _outer(address, erase)) + _outer(address, add)


def _outer(address: Array, content: Array) -> Array:
    """Returns w (x) v by einsum, so that its gradients are products too, not reductions of broadcasts."""
    return jnp.einsum("...n,...v->...vn", address, content)
