"""What role vectors stand for: their clusters by k-means, Section 4 and Figure 2.

The paper takes 128 questions of a module, one head of the encoder's last layer and k = 20, and colours each
character of a question by the cluster that its role vector belongs to. This makes the clusters; drawing them
is left to who has the characters.

Axis letters: N questions, S source positions, H heads, D features of a head, M vectors, V vocabulary.
"""

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Bool, Float, Int
from scipy.cluster import vq

from tp_transformer.model import TPTransformer, encoder_attention

PADDING = -1  # of labels
ITERATIONS = 100
RESTARTS = 10


@dataclasses.dataclass(frozen=True)
class RoleClusters:
    """Clusters of one head's role vectors.

    Attributes:
      head: whose roles these are.
      centroids: the most frequent cluster first.
      labels: the cluster of each position of the questions; -1 where there is only padding.
      inertia: sum of squared distances of the vectors to their centroids.
      total: the same to the mean of all: what one cluster would have.
    """

    head: int
    centroids: Float[np.ndarray, "k D"]
    labels: Int[np.ndarray, "N S"]
    inertia: float
    total: float


@functools.partial(jax.jit, static_argnames="model")
def role_vectors(
    model: TPTransformer, params: Mapping[str, Any], source: Int[Array, "N S"]
) -> Float[Array, "N S H D"]:
    """Role vectors r of equation (3), of the encoder's last layer; ValueError if the model has none."""
    roles = encoder_attention(model, {"params": params}, source)[-1].roles
    if roles is None:
        raise ValueError(f"model is a {type(model).__name__}, expected a TPTransformer: it has role vectors")
    return roles


def cluster(
    vectors: Float[np.ndarray, "M D"], k: int = 20, *, seed: int = 0
) -> tuple[Float[np.ndarray, "k D"], Int[np.ndarray, "M"]]:
    """k-means: the best of several runs, each from centres that k-means++ drew.

    Returns:
      Centroids, those of the most vectors first, and the number of each vector's; the same for the same seed.

    Raises:
      ValueError: no k clusters can be made of these vectors: k of them must differ.
    """
    vectors = np.asarray(vectors, np.float64)
    if vectors.ndim != 2:
        raise ValueError(f"vectors has shape {vectors.shape}, expected [M, D]")
    distinct = len(np.unique(vectors, axis=0))
    if not 1 <= k <= distinct:
        raise ValueError(f"k is {k}, expected from 1 up to the {distinct} different vectors")
    rng, runs = np.random.default_rng(seed), []
    for _ in range(RESTARTS):
        try:
            centroids, _ = vq.kmeans2(vectors, k, iter=ITERATIONS, minit="++", missing="raise", rng=rng)
        except vq.ClusterError:  # a cluster lost all its vectors: what is left is not k clusters
            continue
        labels, distances = vq.vq(vectors, centroids)
        runs.append((np.sum(distances**2), centroids, labels))
    if not runs:
        raise ValueError(f"k is {k}, but each of {RESTARTS} runs lost a cluster: expected a smaller k")
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
    """Clusters of a head's role vectors over all positions of all questions.

    Args:
      model: a TP-Transformer.
      params: its parameters.
      source: questions, of one module as a rule; padding takes no part.
      head: from 0; the paper draws one.
      k: how many clusters.
      seed: of k-means.

    Raises:
      ValueError: a head that is not there, or fewer different role vectors than clusters.
    """
    if not 0 <= head < model.num_heads:
        raise ValueError(f"head is {head}, expected one of {model.num_heads}, from 0")
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
    """The clusters that the characters of other questions fall into; -1 where there is only padding."""
    mask, vectors = _of_head(model, params, source, clusters.head)
    return _at(mask, vq.vq(vectors, clusters.centroids)[0])


def symbol_counts(
    clusters: RoleClusters, source: Int[Array, "N S"], vocab_size: int
) -> Int[np.ndarray, "k V"]:
    """How often each symbol is in each cluster: what a cluster is about, as a first look."""
    symbols = np.asarray(source)
    if symbols.shape != clusters.labels.shape:
        raise ValueError(f"source has shape {symbols.shape}, expected the labels' {clusters.labels.shape}")
    real = clusters.labels != PADDING
    counts = np.zeros((len(clusters.centroids), vocab_size), int)
    np.add.at(counts, (clusters.labels[real], symbols[real]), 1)
    return counts


def _of_head(
    model: TPTransformer, params: Mapping[str, Any], source: Int[Array, "N S"], head: int
) -> tuple[Bool[np.ndarray, "N S"], Float[np.ndarray, "M D"]]:
    """Where the source is not padding, and a head's role vectors there."""
    mask = np.asarray(source) != model.pad
    return mask, np.asarray(role_vectors(model, params, source)[:, :, head], np.float64)[mask]


def _at(mask: Bool[np.ndarray, "N S"], labels: Int[np.ndarray, "M"]) -> Int[np.ndarray, "N S"]:
    placed = np.full(mask.shape, PADDING)
    placed[mask] = labels
    return placed
