"""Interpretation of role vectors: clusters found by k-means, Section 4 and Figure 2.

The paper uses 128 questions of a module, one head of the encoder's last layer and k = 20, and colours each
character of a question by the cluster of its role vector. This module computes the clusters; drawing is left
to the caller.

Axis letters: N questions, S source positions, H heads, D features of a head, M vectors, V vocabulary, k
clusters.
"""

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Bool, Float, Int
from scipy.cluster import vq

from tp_transformer.model import TPTransformer, check_tokens, encoder_attention

PADDING = -1  # label of padding
ITERATIONS = 100
RESTARTS = 10


@dataclasses.dataclass(frozen=True)
class RoleClusters:
    """Clusters of one head's role vectors.

    Attributes:
      head: index of the head.
      centroids: centroids, most frequent cluster first.
      labels: cluster of each position of the questions; -1 at padding.
      inertia: sum of squared distances of the vectors to their centroids.
      total: sum of squared distances of the vectors to their mean, the inertia of a single cluster.
    """

    head: int
    centroids: Float[np.ndarray, "k D"]
    labels: Int[np.ndarray, "N S"]
    inertia: float
    total: float


def role_vectors(
    model: TPTransformer, params: Mapping[str, Any], source: Int[Array | np.ndarray, "N S"]
) -> Float[Array, "N S H D"]:
    """Returns role vectors r of equation (3) in the last encoder layer.

    Raises:
        ValueError: the model has none, or `source` is not an array of its ids.
    """
    check_tokens("source", source, model.vocab_size)
    return _role_vectors(model, params, source)


@functools.partial(jax.jit, static_argnames="model")
def _role_vectors(model, params, source):
    roles = encoder_attention(model, {"params": params}, source)[-1].roles
    if roles is None:
        raise ValueError(
            f"model: got a {type(model).__name__}, expected a TPTransformer, which has role vectors"
        )
    return roles


def cluster(
    vectors: Float[np.ndarray, "M D"], k: int = 20, *, seed: int = 0
) -> tuple[Float[np.ndarray, "k D"], Int[np.ndarray, "M"]]:
    """Runs k-means several times with k-means++ initialisation and returns the best result.

    Returns:
      Centroids, largest cluster first, and the label of each vector. The same seed gives the same result.

    Raises:
      ValueError: there are fewer than k distinct vectors, or every run lost a cluster.
    """
    vectors = np.asarray(vectors, np.float64)
    if vectors.ndim != 2:
        raise ValueError(f"vectors: got shape {vectors.shape}, expected [M, D]")
    distinct = len(np.unique(vectors, axis=0))
    if not 1 <= k <= distinct:
        raise ValueError(f"k: got {k}, expected 1 to {distinct}, the number of distinct vectors")
    rng, runs = np.random.default_rng(seed), []
    for _ in range(RESTARTS):
        try:
            centroids, _ = vq.kmeans2(vectors, k, iter=ITERATIONS, minit="++", missing="raise", rng=rng)
        except vq.ClusterError:  # a cluster lost all its vectors, so fewer than k are left
            continue
        labels, distances = vq.vq(vectors, centroids)
        runs.append((np.sum(distances**2), centroids, labels))
    if not runs:
        raise ValueError(
            f"k: got {k}, expected a smaller number, since each of {RESTARTS} runs lost a cluster"
        )
    _, centroids, labels = min(runs, key=lambda run: run[0])
    order = np.argsort(-np.bincount(labels, minlength=k), kind="stable")
    return centroids[order], np.argsort(order)[labels]


def cluster_roles(
    model: TPTransformer,
    params: Mapping[str, Any],
    source: Int[Array, "N S"],
    *,
    head: int,
    k: int = 20,
    seed: int = 0,
) -> RoleClusters:
    """Clusters a head's role vectors over all positions of all questions.

    Args:
      model: a TP-Transformer.
      params: parameters of the model.
      source: questions, usually of one module; padding is ignored.
      head: index of the head; the paper draws one.
      k: number of clusters.
      seed: seed of k-means.

    Raises:
      ValueError: the head does not exist, or there are fewer distinct role vectors than clusters.
    """
    if not 0 <= head < model.num_heads:
        raise ValueError(f"head: got {head}, expected 0 to {model.num_heads - 1}")
    mask, vectors = _of_head(model, params, source, head)
    centroids, labels = cluster(vectors, k, seed=seed)
    return RoleClusters(
        head=head,
        centroids=centroids,
        labels=_at(mask, labels),
        inertia=float(np.sum((vectors - centroids[labels]) ** 2)),
        total=float(np.sum((vectors - vectors.mean(axis=0)) ** 2)),
    )


def assign(
    clusters: RoleClusters, model: TPTransformer, params: Mapping[str, Any], source: Int[Array, "N S"]
) -> Int[np.ndarray, "N S"]:
    """Assigns the characters of other questions to clusters; returns -1 at padding."""
    mask, vectors = _of_head(model, params, source, clusters.head)
    return _at(mask, vq.vq(vectors, clusters.centroids)[0])


def symbol_counts(
    clusters: RoleClusters, source: Int[Array, "N S"], vocab_size: int
) -> Int[np.ndarray, "k V"]:
    """Counts how often each symbol occurs in each cluster, a first hint of the cluster's meaning."""
    symbols = np.asarray(source)
    if symbols.shape != clusters.labels.shape:
        raise ValueError(
            f"source: got shape {symbols.shape}, expected that of labels, {clusters.labels.shape}"
        )
    real = clusters.labels != PADDING
    counts = np.zeros((len(clusters.centroids), vocab_size), int)
    np.add.at(counts, (clusters.labels[real], symbols[real]), 1)
    return counts


def _of_head(
    model: TPTransformer, params: Mapping[str, Any], source: Int[Array, "N S"], head: int
) -> tuple[Bool[np.ndarray, "N S"], Float[np.ndarray, "M D"]]:
    """Returns where the source is not padding, and a head's role vectors there."""
    mask = np.asarray(source) != model.pad
    return mask, np.asarray(role_vectors(model, params, source)[:, :, head], np.float64)[mask]


def _at(mask: Bool[np.ndarray, "N S"], labels: Int[np.ndarray, "M"]) -> Int[np.ndarray, "N S"]:
    placed = np.full(mask.shape, PADDING)
    placed[mask] = labels
    return placed
