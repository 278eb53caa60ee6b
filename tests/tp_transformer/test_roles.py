"""Clusters of role vectors: k-means against its definition, and their assignment to characters."""

import jax.numpy as jnp
import numpy as np
import pytest

from tests.tp_transformer import plain
from tests.tp_transformer.small import build, draw, tokens
from tp_transformer import TPTransformer, Transformer, convert, roles

pytestmark = pytest.mark.usefixtures("compiled_quickly")


def blobs(sizes, features=3, seed=0):
    """Draws points around distant centres, with given counts, in random order."""
    rng = np.random.default_rng(seed)
    centres = 10 * np.eye(len(sizes), features)
    of = np.repeat(np.arange(len(sizes)), sizes)
    return centres[of] + 0.1 * rng.normal(size=(len(of), features)), of


def test_blobs_are_found_by_size():
    """Well-separated clusters are found and sorted by size."""
    vectors, of = blobs([5, 20, 11])
    centroids, labels = roles.cluster(vectors, 3)
    np.testing.assert_array_equal(labels, np.array([2, 0, 1])[of])
    np.testing.assert_allclose(centroids, [vectors[of == blob].mean(axis=0) for blob in (1, 2, 0)])
    assert roles.cluster(vectors.astype(np.float32), 3)[0].dtype == np.float64


def test_a_fixed_point_and_no_worse_than_others():
    """Each vector is assigned to the nearest centroid, its cluster's mean; other runs are not better."""
    vectors = np.random.default_rng(3).normal(size=(300, 4))
    centroids, labels = roles.cluster(vectors, 6, seed=1)
    distances = np.sum((vectors[:, None] - centroids) ** 2, axis=-1)
    np.testing.assert_array_equal(np.argmin(distances, axis=1), labels)
    means = [vectors[labels == cluster].mean(axis=0) for cluster in range(6)]
    np.testing.assert_allclose(centroids, means, atol=1e-8)
    assert np.all(np.diff(np.bincount(labels)) <= 0)
    rng = np.random.default_rng(0)
    for _ in range(5):
        own = vectors[rng.choice(300, 6, replace=False)]
        for _ in range(50):
            nearest = np.argmin(np.sum((vectors[:, None] - own) ** 2, axis=-1), axis=1)
            own = np.stack([vectors[nearest == cluster].mean(axis=0) for cluster in range(6)])
        inertia = np.min(np.sum((vectors[:, None] - own) ** 2, axis=-1), axis=1).sum()
        assert np.min(distances, axis=1).sum() <= inertia * 1.01


def test_the_seed_decides():
    """The same seed gives the same clusters."""
    vectors = np.random.default_rng(3).normal(size=(200, 4))
    first, again = (roles.cluster(vectors, 5, seed=4) for _ in range(2))
    np.testing.assert_array_equal(first[0], again[0])
    np.testing.assert_array_equal(first[1], again[1])


def test_the_best_of_ten_runs_is_kept(monkeypatch):
    """Runs that lose a cluster do not count; if all do, k was too large."""
    vectors, of = blobs([5, 20, 11])
    best = np.stack([vectors[of == blob].mean(axis=0) for blob in range(3)])
    runs = [best + shift for shift in (3.0, 2.0, 0.5, 0.0, 1.0, 4.0, 2.0, 2.0)]
    outcomes = iter([*runs[:2], None, *runs[2:], None])

    def kmeans(given, k, *, iter, minit, missing, rng):
        assert (k, iter, minit, missing) == (3, 100, "++", "raise")
        np.testing.assert_array_equal(given, vectors)
        centroids = next(outcomes)
        if centroids is None:
            raise roles.vq.ClusterError("lost")
        return centroids, None

    monkeypatch.setattr(roles.vq, "kmeans2", kmeans)
    centroids, _ = roles.cluster(vectors, 3)
    np.testing.assert_array_equal(centroids, best[[1, 2, 0]])
    assert next(outcomes, "none left") == "none left"
    outcomes = iter([None] * 10)
    with pytest.raises(ValueError, match="k: got 3, expected a smaller number, since each of 10 runs"):
        roles.cluster(vectors, 3)


def test_twenty_clusters_by_default_and_a_seed_of_choice(monkeypatch):
    """As in figure 2."""
    vectors = np.random.default_rng(3).normal(size=(60, 2))
    assert len(roles.cluster(vectors)[0]) == 20
    seen = []

    def cluster(vectors, k, *, seed):
        seen.append((k, seed))
        return np.zeros((k, 4)), np.zeros(len(vectors), int)

    monkeypatch.setattr(roles, "cluster", cluster)
    roles.cluster_roles(MODEL, PARAMS, SOURCE, head=0)
    roles.cluster_roles(MODEL, PARAMS, SOURCE, head=0, k=3, seed=8)
    assert seen == [(20, 0), (3, 8)]


def test_as_many_clusters_as_vectors_or_one():
    """The extreme values of k work."""
    vectors = np.arange(4.0)[:, None] * np.ones((1, 2))
    _, labels = roles.cluster(np.concatenate([vectors, vectors]), 4)
    assert sorted(np.bincount(labels)) == [2, 2, 2, 2]
    assert sorted(roles.cluster(vectors, 4)[1]) == [0, 1, 2, 3]
    centroids, labels = roles.cluster(vectors, 1)
    np.testing.assert_allclose(centroids, [[1.5, 1.5]])
    np.testing.assert_array_equal(labels, 0)


MODEL = build(TPTransformer, num_layers=2)
PARAMS = draw(MODEL)
SOURCE = tokens(12, 6).at[::3, 4:].set(0)


def test_vectors_are_the_last_layers():
    """W_r LN(z) + b_r of each head in the encoder's last layer, computed per cell."""
    found = np.asarray(roles.role_vectors(MODEL, PARAMS, SOURCE))
    assert found.shape == (12, 6, 4, 4)
    state = {name: np.asarray(array, np.float64) for name, array in convert.to_torch(MODEL, PARAMS).items()}
    for row in (0, 1):
        source = np.asarray(SOURCE[row])
        x, real = plain.embed(state, source), source != 0
        normed = plain.norms(state, "encoder.layers.0.layernorm1", x)
        x = x + plain.sublayer(state, "encoder.layers.0.MHA", 4, normed, normed, [real] * len(x))
        normed = plain.norms(state, "encoder.layers.0.layernorm2", x)
        x = x + plain.feed_forward(state, "encoder.layers.0.densefilter", normed)
        x = plain.norms(state, "encoder.layers.0.layernorm3", x)
        normed = plain.norms(state, "encoder.layers.1.layernorm1", x)
        want = [plain.affine(state, "encoder.layers.1.MHA.W_r", cell).reshape(4, 4) for cell in normed]
        np.testing.assert_allclose(found[row], want, rtol=1e-3, atol=1e-4)


def test_clusters_of_a_model():
    """Labels of the selected head exist exactly at characters."""
    found = roles.cluster_roles(MODEL, PARAMS, SOURCE, head=2, k=5)
    real = np.asarray(SOURCE) != 0
    assert found.labels.shape == SOURCE.shape
    np.testing.assert_array_equal(found.labels == -1, ~real)
    assert set(found.labels[real]) == set(range(5))
    vectors = np.asarray(roles.role_vectors(MODEL, PARAMS, SOURCE))[:, :, 2]
    for n, s in np.argwhere(real):
        distances = np.linalg.norm(found.centroids - vectors[n, s], axis=1)
        assert np.argmin(distances) == found.labels[n, s]
    np.testing.assert_allclose(
        found.inertia, np.sum((vectors[real] - found.centroids[found.labels[real]]) ** 2), rtol=1e-5
    )
    np.testing.assert_allclose(found.total, np.var(vectors[real], axis=0).sum() * real.sum(), rtol=1e-4)
    assert found.inertia < found.total
    other = roles.cluster_roles(MODEL, PARAMS, SOURCE, head=1, k=5)
    assert np.any(other.labels != found.labels)
    assert other.head == 1


def test_sums_over_many_vectors_have_64_bits(monkeypatch):
    """A mean in float32 would be off by as much as the vectors differ."""
    source = jnp.ones((20_000, 1), jnp.int32)
    vectors = (1000 + np.random.default_rng(0).normal(size=(20_000, 1, 1, 2)) / 100).astype(np.float32)
    monkeypatch.setattr(roles, "role_vectors", lambda *_: vectors)
    found = roles.cluster_roles(MODEL, PARAMS, source, head=0, k=2)
    assert found.total == pytest.approx(
        np.var(vectors[:, 0, 0].astype(float), axis=0).sum() * 20_000, rel=1e-6
    )


def test_other_questions_fall_into_clusters():
    """Assigning the clustered questions again reproduces their labels."""
    found = roles.cluster_roles(MODEL, PARAMS, SOURCE, head=0, k=4)
    np.testing.assert_array_equal(roles.assign(found, MODEL, PARAMS, SOURCE), found.labels)
    shorter = np.array(SOURCE)[::-1]  # of the same shape, so the same program
    shorter[0, 2:] = 0
    labels = found.labels[::-1]
    again = roles.assign(found, MODEL, PARAMS, jnp.asarray(shorter))
    np.testing.assert_array_equal(again[1:], labels[1:])
    np.testing.assert_array_equal(again[0, 2:], -1)


def test_counts_of_symbols():
    """Every character is counted once, in its cluster's row."""
    found = roles.cluster_roles(MODEL, PARAMS, SOURCE, head=0, k=4)
    counts = roles.symbol_counts(found, SOURCE, 11)
    want = np.zeros((4, 11), int)
    for label, symbol in zip(found.labels.flat, np.asarray(SOURCE).flat, strict=True):
        if symbol:
            want[label, symbol] += 1
    np.testing.assert_array_equal(counts, want)
    assert counts[:, 0].sum() == 0


def test_what_is_refused():
    """Errors name the argument."""
    for k in (0, 4):
        with pytest.raises(ValueError, match=rf"k: got {k}, expected 1 to 3, the number of distinct vectors"):
            roles.cluster(np.array([[0.0], [1], [2], [2]]), k)
    with pytest.raises(ValueError, match=r"vectors: got shape \(3,\)"):
        roles.cluster(np.zeros(3))
    with pytest.raises(ValueError, match="head: got 4, expected 0 to 3"):
        roles.cluster_roles(MODEL, PARAMS, SOURCE, head=4)
    plain_model = build(Transformer)
    with pytest.raises(ValueError, match="source: got id 11 in row 0 at position 0"):
        roles.role_vectors(MODEL, PARAMS, SOURCE.at[0, 0].set(11))
    with pytest.raises(ValueError, match="model: got a Transformer, expected a TPTransformer"):
        roles.role_vectors(plain_model, draw(plain_model), SOURCE)
    found = roles.cluster_roles(MODEL, PARAMS, SOURCE, head=0, k=2)
    with pytest.raises(ValueError, match=r"source: got shape \(1, 6\), expected that of labels, \(12, 6\)"):
        roles.symbol_counts(found, SOURCE[:1], 11)
