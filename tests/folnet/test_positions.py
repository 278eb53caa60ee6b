"""Relative positions compared with the paper's formula and T5's rule."""

import math

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest

from folnet import positions
from tests.folnet import small

pytestmark = pytest.mark.usefixtures("compiled_quickly")

DELTAS = (2, 7)
TYPES = np.asarray([[0, 0, 0, 0, 1, 1, 1, 0, 0], [0, 1, 1, 1, 1, 1, 1, 1, 1], [0] * 9])


def distance(t, tau, types, delta):
    """Computes dist_Delta of Appendix A.4, with names for its special distances."""
    if t == 0 and tau == 0:
        return 0
    if t == 0:
        return "from [CLS]"
    if tau == 0:
        return "to [CLS]"
    if types[t] != types[tau]:
        return "other"
    return max(1 - delta, min(tau - t, delta - 1))


compiled = small.quickly(positions.relative_ids, static_argnums=4)


def relative_ids(*given):
    """Returns the ids of arrays of NumPy as one."""
    return np.asarray(compiled(*map(jnp.asarray, given[:-1]), given[-1]))


@pytest.mark.parametrize("delta", DELTAS)
def test_ids_number_the_paper_s_distances(delta):
    """Distances and ids correspond one to one, and all ids are rows of the table."""
    length = TYPES.shape[1]
    ids = relative_ids(np.arange(length), np.arange(length), TYPES, TYPES, delta)
    number = {"other": delta, "from [CLS]": 2 * delta, "to [CLS]": 2 * delta + 1}
    number |= {d: d if d >= 0 else 2 * delta + d for d in range(1 - delta, delta)}
    assert sorted(number.values()) == list(range(2 * delta + 2))
    for b, t, tau in np.ndindex(ids.shape):
        assert ids[b, t, tau] == number[distance(t, tau, TYPES[b], delta)], (b, t, tau)


def test_ids_of_some_rows():
    """As for a decoder: row 5 and earlier columns, and again for a longer text."""
    at = np.arange(9)
    whole = relative_ids(at, at, TYPES, TYPES, 2)
    row = relative_ids(at[5:6], at[:6], TYPES[:, 5:6], TYPES[:, :6], 2)
    np.testing.assert_array_equal(row, whole[:, 5:6, :6])


@pytest.mark.parametrize("delta", DELTAS)
def test_atoms_are_rows_of_the_table(delta):
    """Values and gradients are the same by bands and by ids."""
    rng = np.random.default_rng(0)
    table = jnp.asarray(rng.normal(size=(2 * delta + 2, 3)), jnp.float32)
    at, types = np.arange(9), jnp.asarray(TYPES)
    weight = jnp.asarray(rng.normal(size=(3, 3, 9, 9)), jnp.float32)
    ids = relative_ids(at, at, TYPES, TYPES, delta)

    def value(table):
        atoms = positions.relative_atoms(table, types, delta)
        return (atoms * weight).sum(), atoms

    (_, atoms), grad = small.quickly(jax.value_and_grad(value, has_aux=True))(table)
    np.testing.assert_array_equal(atoms, np.moveaxis(np.asarray(table)[ids], -1, 1))
    want = np.zeros(table.shape)
    np.add.at(want, ids, np.moveaxis(np.asarray(weight, np.float64), 1, -1))
    np.testing.assert_allclose(grad, want, atol=1e-5)


def test_the_gradient_needs_no_scatter():
    """The bands serve this purpose."""
    types = jnp.zeros((2, 9), jnp.int32)
    grad = jax.grad(lambda table: (positions.relative_atoms(table, types, 4) ** 2).sum())
    text = str(jax.make_jaxpr(grad)(jnp.ones((10, 3))))
    assert "scatter" not in text
    assert "gather" not in text


@pytest.mark.parametrize("length", [1, 2, 6])
def test_diagonals(length):
    """The value for y - x is at [x, y]."""
    values = np.arange(2 * (2 * length - 1), dtype=np.float32).reshape(2, -1)
    got = np.asarray(small.quickly(positions.diagonals)(values))
    for x, y in np.ndindex(length, length):
        np.testing.assert_array_equal(got[:, x, y], values[:, length - 1 + y - x])


def t5_bucket(offset, num_buckets, max_distance):
    """Computes the bucket of one distance, by Raffel et al. (2020), Section 2.1, and their code."""
    num_buckets //= 2
    bucket = num_buckets if offset > 0 else 0
    distance = abs(offset)
    exact = num_buckets // 2
    if distance < exact:
        return bucket + distance
    # The first k for which exact * (max_distance / exact)^(k / n) is more, by whole numbers.
    n, k = num_buckets - exact, 0
    while k < n - 1 and distance**n * exact ** (k + 1) >= exact**n * max_distance ** (k + 1):
        k += 1
    return bucket + exact + k


@pytest.mark.parametrize(("count", "distance"), [(32, 128), (8, 20), (12, 1000), (20, 160), (72, 32)])
def test_buckets(count, distance):
    """All distances up to well beyond the start of the last bucket."""
    offsets = np.arange(-2 * distance, 2 * distance + 1)
    got = positions.t5_buckets(offsets, count, distance)
    np.testing.assert_array_equal(got, [t5_bucket(int(o), count, distance) for o in offsets])
    assert (got.min(), got.max()) == (0, count - 1)


def test_buckets_by_hand():
    """T5's own: 8 single distances, then 8-11, 12-15, 16-22, ... 91 and more."""
    ends = [math.ceil(8 * 16 ** (k / 8)) for k in range(8)]
    assert ends == [8, 12, 16, 23, 32, 46, 64, 91]
    got = positions.t5_buckets(-np.asarray([0, 1, 7, *ends, 10_000]), 32, 128)
    np.testing.assert_array_equal(got, [0, 1, 7, *range(8, 16), 15])
    np.testing.assert_array_equal(positions.t5_buckets(np.asarray([1, 91]), 32, 128), [17, 31])


def test_atoms_of_buckets():
    """Rows by distance, the same for all texts."""
    table = np.arange(16, dtype=np.float32).reshape(8, 2)
    atoms = np.asarray(small.quickly(lambda table: positions.t5_atoms(table, 5, 20))(table))
    for x, y in np.ndindex(5, 5):
        np.testing.assert_array_equal(atoms[0, :, x, y], table[t5_bucket(y - x, 8, 20)])


def test_atoms_of_texts_of_any_length():
    """One exported function serves all lengths, where there are no diagonals to reshape."""
    (length,) = jax.export.symbolic_shape("t")
    types = jax.ShapeDtypeStruct((3, length), jnp.int32)
    table = jnp.asarray(np.random.default_rng(0).normal(size=(10, 2)), jnp.float32)
    run = jax.export.export(jax.jit(lambda types: positions.relative_atoms(table, types, 4)))(types)
    want = small.quickly(lambda types: positions.relative_atoms(table, types, 4))(TYPES)
    np.testing.assert_array_equal(run.call(jnp.asarray(TYPES, jnp.int32)), want)


def test_rows_are_exact_on_accelerators_too():
    """A product in TF32 or bfloat16 passes would round the table."""
    jaxpr = jax.make_jaxpr(lambda table: positions.rows_of(table, np.asarray([3, 1])))(jnp.ones((4, 2)))
    (product,) = (eqn for eqn in jaxpr.eqns if eqn.primitive.name == "dot_general")
    assert set(product.params["precision"]) == {jax.lax.Precision.HIGHEST}
