"""Keys of rows: every draw is that of the rows alone, and other draws are refused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from experiments.runtime import row_keys
from folnet.dropout import Dropout

pytestmark = pytest.mark.usefixtures("compiled_quickly")

ROWS = jnp.arange(6)


class Dropped(nn.Module):
    """Flax's and FOLNet's dropout, one of them computed again for the gradient."""

    @nn.compact
    def __call__(self, inputs):
        inputs = nn.Dropout(0.5)(inputs, deterministic=False)
        return nn.remat(Dropout, static_argnums=(2,))(0.3)(inputs, False)


def draws(rows):
    """Draws in several ways for rows, among them two numbers per row and from keys derived in a loop."""
    key = row_keys.of_rows(jax.random.key(3), rows)
    first, second, third = jax.random.split(key, 3)
    count = rows.shape[0]
    _, looped = jax.lax.scan(
        lambda key, step: (jax.random.split(key)[0], jax.random.bits(key, (count,))), first, length=2
    )
    return {
        "normal": jax.random.normal(first, (count, 3)),
        "two": jax.random.uniform(second, (2 * count, 4)).reshape(count, 2, 4),
        "folded": jax.random.bits(jax.random.fold_in(third, 5), (count, 2), jnp.uint16),
        "looped": looped.T,
        "dropped": Dropped().apply({}, jnp.ones((count, 4, 5)), rngs={"dropout": second}),
    }


def test_a_row_draws_the_same_whatever_rows_it_is_with():
    compiled = jax.jit(draws)
    whole = jax.device_get(compiled(ROWS))
    for rows in (np.arange(0, 6, 2), np.arange(1, 6, 2)):
        for name, part in compiled(rows).items():
            np.testing.assert_array_equal(part, whole[name][rows], err_msg=name)
    for name in ("normal", "two", "looped"):
        assert len(np.unique(whole[name])) == whole[name].size, name
    assert len({row.tobytes() for row in np.asarray(whole["dropped"])}) == 6


def test_under_vmap_every_run_has_its_own_draws():
    def of_seed(seed):
        return jax.random.normal(row_keys.of_rows(jax.random.key(seed), ROWS), (6, 2))

    several = jax.vmap(of_seed)(jnp.arange(3))
    for seed in range(3):
        np.testing.assert_array_equal(several[seed], of_seed(seed))


@pytest.mark.parametrize("shape", [(), (4,), (3, 6)])
def test_draws_of_other_shapes_are_refused(shape):
    with pytest.raises(ValueError, match=r"key: got a draw of shape \(.*expected .* multiple of the 6 rows"):
        jax.random.uniform(row_keys.of_rows(jax.random.key(0), ROWS), shape)


def test_draws_of_64_bits_are_refused():
    key = row_keys.of_rows(jax.random.key(0), ROWS)
    with (
        jax.enable_x64(True),
        pytest.raises(ValueError, match="key: got a draw of 64 bits, expected one of 8, "),
    ):
        jax.random.bits(key, (6,), jnp.uint64)
