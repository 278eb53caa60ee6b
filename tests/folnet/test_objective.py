"""Losses compared with float64 NumPy; sums that add up, ignored labels, bad shapes."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from folnet import objective
from tests.folnet import small

pytestmark = pytest.mark.usefixtures("compiled_quickly")

RNG = np.random.default_rng(0)
LOGITS = RNG.normal(size=(4, 3, 5)) * 3
LABELS = np.asarray([[0, 4, -1], [-100, -100, -1], [2, 2, 2], [1, -1, 3]])


cross_entropy = small.quickly(objective.cross_entropy)
sequence_classification = small.quickly(objective.sequence_classification, static_argnums=2)


def log_softmax(z):
    z = z - z.max(axis=-1, keepdims=True)
    return z - np.log(np.exp(z).sum(axis=-1, keepdims=True))


def test_cross_entropy():
    """Only real labels count; both ignored values are ignored."""
    got = cross_entropy(jnp.asarray(LOGITS, jnp.float32), jnp.asarray(LABELS))
    logs, real = log_softmax(LOGITS), LABELS >= 0
    want = sum(-logs[i, j, LABELS[i, j]] for i, j in np.ndindex(LABELS.shape) if real[i, j])
    np.testing.assert_allclose(got.sum, want, rtol=1e-6)
    assert int(got.count) == real.sum() == 7
    assert int(got.correct) == ((LOGITS.argmax(-1) == LABELS) & real).sum()
    np.testing.assert_allclose(got.mean, want / 7, rtol=1e-6)
    np.testing.assert_allclose(got.accuracy, float(got.correct) / 7, rtol=1e-6)


def test_labels_out_of_range():
    """Compiled functions cannot check them; negative ones do not count from the end either."""
    for label in (5, -2):
        assert np.isnan(cross_entropy(jnp.zeros((1, 5)), jnp.asarray([label])).sum)


@pytest.mark.unchecked  # annotations have signed integers only
def test_labels_of_narrow_types():
    """All of them count where 255 and 156 are -1 and -100 in another form, and these where they are not."""
    logits = jnp.asarray(RNG.normal(size=(3, 256)), jnp.float32)
    found, want = (cross_entropy(logits, jnp.asarray([255, 156, 3], dtype)) for dtype in (np.uint8, np.int32))
    chex.assert_trees_all_equal(found, want)
    found, want = (
        cross_entropy(logits, jnp.asarray([127, -1, -100], dtype)) for dtype in (np.int8, np.int32)
    )
    chex.assert_trees_all_equal(found, want)


def test_batches_add_up():
    """Sums of parts equal those of the whole, also if a part has no labels."""
    logits, labels = jnp.asarray(LOGITS, jnp.float32), jnp.asarray(LABELS)
    parts = [cross_entropy(logits[i : i + 1], labels[i : i + 1]) for i in range(4)]
    total = jax.device_get(parts[0] + parts[1] + parts[2] + parts[3])
    whole = cross_entropy(logits, labels)
    jax.tree.map(lambda one, other: np.testing.assert_allclose(one, other, rtol=1e-6), total, whole)
    assert float(parts[1].mean) == float(parts[1].accuracy) == 0
    one = objective.Loss(jnp.float32(0.25), jnp.int32(1), jnp.int32(1))
    assert (float(one.mean), float(one.accuracy)) == (0.25, 1)


def test_ignored_labels_have_no_gradient():
    """No gradient is NaN."""
    labels = jnp.asarray(LABELS)
    grad = small.quickly(jax.grad(lambda z: objective.cross_entropy(z, labels).sum))(
        LOGITS.astype(np.float32)
    )
    probabilities = np.exp(log_softmax(LOGITS))
    want = np.where((LABELS >= 0)[..., None], probabilities - np.eye(5)[np.maximum(LABELS, 0)], 0)
    np.testing.assert_allclose(grad, want, atol=1e-6)


def test_half_precision_is_summed_in_float32():
    """The sum of a thousand small losses."""
    logits = jnp.zeros((1000, 3), jnp.bfloat16)
    got = cross_entropy(logits, jnp.zeros(1000, jnp.int32))
    np.testing.assert_allclose(got.sum, 1000 * np.log(3), rtol=1e-5)


def test_labels_of_several_types():
    """Losses of bfloat16 numbers are computed in float32, for each kind of problem."""
    z, t = (jnp.asarray(RNG.normal(size=(400, 1)), jnp.bfloat16) for _ in range(2))
    exact, aim = np.asarray(z, np.float64), np.asarray(t, np.float64)
    squares = small.quickly(objective.squared_error)(z, t)
    np.testing.assert_allclose(squares.sum, np.square(exact - aim).sum(), rtol=1e-5)
    yes = aim > 0
    want = (np.log1p(np.exp(exact)) - yes * exact).sum()
    binary = small.quickly(objective.binary_cross_entropy)(z, jnp.asarray(yes, jnp.int32))
    np.testing.assert_allclose(binary.sum, want, rtol=1e-5)


def test_spans():
    """Half the sum of both ends, over texts."""
    start, end = RNG.normal(size=(2, 3, 6))
    first, last = np.asarray([0, 5, 2]), np.asarray([1, 5, 4])
    start[1, 5] = end[1, 5] = start[2, 2] = end[2, 0] = 9  # one text has both right, one only the start
    starts, ends = (jnp.asarray(z, jnp.float32) for z in (start, end))
    span = small.quickly(objective.span)
    got = span(starts, ends, jnp.asarray(first), jnp.asarray(last))
    rows = np.arange(3)
    want = -0.5 * (log_softmax(start)[rows, first] + log_softmax(end)[rows, last]).sum()
    np.testing.assert_allclose(got.sum, want, rtol=1e-6)
    both = (start.argmax(-1) == first) & (end.argmax(-1) == last)
    assert (int(got.count), int(got.correct)) == (3, both.sum())
    assert both.tolist() == [False, True, False]
    places = [jnp.asarray([*place[:2], -100]) for place in (first, last)]
    less = span(starts, ends, *places)
    want = -0.5 * (log_softmax(start)[rows, first] + log_softmax(end)[rows, last])[:2].sum()
    np.testing.assert_allclose(less.sum, want, rtol=1e-6)
    assert int(less.count) == 2


def test_regression():
    """Squared errors of one number per text, with labels [B] or [B, 1]."""
    predictions, labels = RNG.normal(size=(4, 1)), RNG.normal(size=4)
    for given in (labels, labels[:, None]):
        got = sequence_classification(jnp.asarray(predictions, jnp.float32), jnp.asarray(given, jnp.float32))
        np.testing.assert_allclose(got.sum, np.square(predictions[:, 0] - labels).sum(), rtol=1e-5)
        assert (int(got.count), int(got.correct)) == (4, 0)


def test_several_labels():
    """Each label is a separate binary problem, and only real ones count."""
    logits, labels = RNG.normal(size=(4, 3)), RNG.integers(0, 2, (4, 3))
    labels[0, 1], labels[2, 0] = -1, -100
    kind, given = "multi_label_classification", jnp.asarray(logits, jnp.float32)
    got = sequence_classification(given, jnp.asarray(labels), kind)
    p, real = 1 / (1 + np.exp(-logits)), labels >= 0
    want = -np.log(np.where(labels, p, 1 - p))[real].sum()
    np.testing.assert_allclose(got.sum, want, rtol=1e-5)
    assert (int(got.count), int(got.correct)) == (10, ((p > 0.5) == labels)[real].sum())
    for wrong in (2, -2, np.nan):
        bad = np.where(labels == -100, wrong, labels)
        with pytest.raises(
            ValueError, match=rf"labels: got {float(wrong)} at \[2, 0\], expected 0 to 1, or one"
        ):
            objective.sequence_classification(given, jnp.asarray(bad, jnp.float32), kind)


def test_the_type_of_a_problem():
    """Inferred from the number of logits unless given."""
    logits, labels = jnp.asarray(LOGITS[:, 0], jnp.float32), jnp.asarray([1, 2, 3, -1])
    got = sequence_classification(logits, labels)
    assert float(got.sum) == float(cross_entropy(logits, labels).sum)
    assert int(got.count) == 3
    with pytest.raises(ValueError, match="problem_type: got 'ranking', expected one of 'regression'"):
        objective.sequence_classification(logits, labels, "ranking")  # pyrefly: ignore


@pytest.mark.parametrize(
    ("name", "shapes", "message"),
    [
        ("cross_entropy", ((4, 5), (3,)), r"labels: got shape \(3,\), expected \(4,\)"),
        ("squared_error", ((4, 1), (4, 2)), r"labels: got shape \(4, 2\), expected \(4, 1\)"),
        ("span", ((4, 3), (4, 2), (4,), (4,)), r"end_logits: got shape \(4, 2\), expected \(4, 3\)"),
        ("binary_cross_entropy", ((4, 1), (4, 2)), r"labels: got shape \(4, 2\)"),
    ],
)
def test_shapes_that_do_not_fit(name, shapes, message):
    """The error gives both shapes."""
    with pytest.raises(ValueError, match=message):
        getattr(objective, name)(*(np.zeros(shape, np.int32) for shape in shapes))
