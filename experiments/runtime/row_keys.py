"""PRNG keys that draw for each row of a batch from the row's own key.

A loss may process a batch as a whole, in parts one after another, or one part per device. Dropout must not
depend on that, so the key of a loss is a key for each row. To a model it looks like a single key: `split`,
`fold_in` and the functions of `jax.random` work as usual (`flax` uses it for an RNG named "dropout"), but the
first axis of whatever is drawn must be that of the rows.

The generator is Threefry (Salmon et al. 2011), whose blocks of 64 bits have a key and a counter of two words
each. `jax.random` counts the numbers of an array; here one word is the row and the other counts its numbers.
Thus no row needs a key schedule of its own, and a draw costs as much as with a single key.
"""

import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend.random import define_prng_impl, threefry2x32_p
from jaxtyping import Array, Int, PRNGKeyArray

UNSIGNED = {8: jnp.uint8, 16: jnp.uint16, 32: jnp.uint32}


def of_rows(key: PRNGKeyArray, rows: Int[Array, "R"]) -> PRNGKeyArray:
    """Returns one key that draws for all rows; the draws of row r depend on `key` and r alone.

    A draw of shape [n R, ...] consists of R draws of shape [n, ...], one per row, in the order of `rows`.
    Draws of other shapes raise a `ValueError`, as do draws of 64-bit words.

    Args:
        key: a single key, the same for all parts of the batch. Of the generator "rbg" only the first half is
            used; draws are Threefry's all the same.
        rows: numbers of the rows in the whole batch.
    """
    pair = jax.random.key_data(key)[:2]
    data = jnp.concatenate([pair, rows.astype(jnp.uint32)])
    return jax.random.wrap_key_data(data, impl=_implementation(rows.shape[0]))


@functools.cache
def _implementation(rows: int) -> Any:
    """Defines keys whose data are the two words of a Threefry key and the numbers of `rows` rows."""

    def on_pair(function):
        def of_data(data, argument):
            pairs = jax.random.key_data(
                function(jax.random.wrap_key_data(data[:2], impl="threefry2x32"), argument)
            )
            numbers = jnp.broadcast_to(data[2:], (*pairs.shape[:-1], rows))
            return jnp.concatenate([pairs, numbers], axis=-1)

        return of_data

    def seed(number):
        raise NotImplementedError("keys of rows are made by of_rows, not from a seed")

    def random_bits(data, width, shape):
        if not shape or shape[0] % rows:
            raise ValueError(
                f"key: got a draw of shape {tuple(shape)}, expected a first axis that is a multiple of the "
                f"{rows} rows of the batch, since each row has its own key"
            )
        if width not in UNSIGNED:
            raise ValueError(
                f"key: got a draw of {width} bits, expected one of {', '.join(map(str, UNSIGNED))}"
            )
        each, *rest = shape[0] // rows, *shape[1:]
        # In the final shape, since arrays of more axes take twice as long to compile.
        row = jnp.repeat(data[2:], each).reshape(-1, *[1] * len(rest))
        place = jnp.tile(
            lax.iota(jnp.uint32, each * math.prod(rest)).reshape(each, *rest), (rows, *[1] * len(rest))
        )
        high, low = threefry2x32_p.bind(data[0], data[1], jnp.broadcast_to(row, shape), place)
        return (high ^ low).astype(UNSIGNED[width])

    return define_prng_impl(
        key_shape=(2 + rows,),
        seed=seed,
        split=on_pair(jax.random.split),
        random_bits=random_bits,
        fold_in=on_pair(jax.random.fold_in),
        name=f"threefry2x32 of {rows} rows",
        tag=f"fry{rows}",
    )
