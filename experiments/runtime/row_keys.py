"""PRNG keys that draw for each row of a batch from the row's own key.

A loss may process a batch as a whole, in parts one after another, or one part per device. Dropout must not
depend on that, so the key of a loss is a key for each row. To a model it looks like a single key: `split`,
`fold_in` and the functions of `jax.random` work as usual (`flax` uses it for an RNG named "dropout"), but the
first axis of whatever is drawn must be that of the rows.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.random import define_prng_impl
from jaxtyping import Array, Int, PRNGKeyArray

UNSIGNED = {8: jnp.uint8, 16: jnp.uint16, 32: jnp.uint32, 64: jnp.uint64}


def of_rows(key: PRNGKeyArray, rows: Int[Array, "R"]) -> PRNGKeyArray:
    """Returns one key that draws for all rows, with the key of row r derived from `key` and r alone.

    A draw of shape [n R, ...] consists of R draws of shape [n, ...], one per row, in the order of `rows`. Draws
    of other shapes raise a `ValueError`. With the generator "rbg", which has no independent batched draws, the
    result still depends on the set of rows.

    Args:
        key: a single key, the same for all parts of the batch.
        rows: numbers of the rows in the whole batch.
    """
    keys = jax.vmap(functools.partial(jax.random.fold_in, key))(rows)
    return jax.random.wrap_key_data(
        jax.random.key_data(keys), impl=_implementation(jax.random.key_impl(key), keys.shape[0])
    )


@functools.cache
def _implementation(base: Any, rows: int) -> Any:
    """Defines keys whose data is that of `rows` keys of the implementation `base`, stacked."""

    def each(function):
        def of_data(data, *arguments):
            return jax.vmap(lambda key: function(key, *arguments))(jax.random.wrap_key_data(data, impl=base))

        return of_data

    def seed(number):
        raise NotImplementedError("keys of rows are made by of_rows, not from a seed")

    @each
    def fold_in(key, number):
        return jax.random.key_data(jax.random.fold_in(key, number))

    def split(data, shape):
        parts = each(lambda key: jax.random.key_data(jax.random.split(key, shape)))(data)
        return jnp.moveaxis(parts, 0, len(shape))

    def random_bits(data, width, shape):
        if not shape or shape[0] % rows:
            raise ValueError(
                f"key: got a draw of shape {tuple(shape)}, expected a first axis that is a multiple of the {rows} "
                "rows of the batch, since each row has its own key"
            )
        part = (shape[0] // rows, *shape[1:])
        return each(lambda key: jax.random.bits(key, part, UNSIGNED[width]))(data).reshape(shape)

    size = jax.eval_shape(lambda: jax.random.key_data(jax.random.key(0, impl=base))).shape
    return define_prng_impl(
        key_shape=(rows, *size),
        seed=seed,
        split=split,
        random_bits=random_bits,
        fold_in=fold_in,
        name=f"{rows} rows of {base}",
        tag=f"{base}x{rows}",
    )
