"""How much of a symbol's syntactic role is in a model's vectors: by a linear probe, and by clusters.

The vectors are those of the encoder's last layer: the role vectors of all heads of a model that has any, or
the states of one that has none; both have as many features as the model. Questions are divided in two halves:
the probe is fitted to one and scored on the other, and so are the clusters.
"""

from collections.abc import Mapping, Sequence
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from experiments.mathematics import syntax
from experiments.runtime.probes import linear_probe
from tp_transformer import mathematics, roles
from tp_transformer.model import EncoderDecoder, encoder_attention

READ = ("place", "depth", "operand", "inverse")
"""Roles that are read at digits, where the symbol itself does not show them."""


def vectors(model: EncoderDecoder, params: Any, questions: Sequence[str]) -> Float[np.ndarray, "N S F"]:
    """Returns role vectors, or states, at the characters of questions, without the start symbol."""
    source = jnp.asarray(mathematics.DEFAULT.encode_batch(questions))

    @jax.jit
    def compute(params, source):
        if model.binds_roles:
            found = encoder_attention(model, {"params": params}, source)[-1].roles
            return cast(jax.Array, found).reshape(*source.shape, model.features)
        return model.apply({"params": params}, source, method="encode")

    return np.asarray(compute(params, source), np.float64)[:, 1:]


def information(clusters: Int[np.ndarray, "M"], labels: Int[np.ndarray, "M"]) -> float:
    """Returns the share of the labels' entropy that is known from the clusters, I(labels; clusters) / H."""
    table = np.zeros((clusters.max() + 1, labels.max() + 1))
    np.add.at(table, (clusters, labels), 1)
    joint = table / table.sum()
    by_label, by_cluster = joint.sum(axis=0), joint.sum(axis=1)
    seen = joint > 0
    mutual = np.sum(joint[seen] * np.log(joint[seen] / np.outer(by_cluster, by_label)[seen]))
    entropy = -np.sum(by_label[by_label > 0] * np.log(by_label[by_label > 0]))
    return float(mutual / entropy) if entropy > 0 else 0.0


def read(
    model: EncoderDecoder, params: Any, questions: Sequence[str], *, k: int = 20, seed: int = 0
) -> dict[str, float]:
    """Measures what the model's vectors tell about the roles of the digits of expressions.

    Args:
        model: the model.
        params: its parameters.
        questions: questions; those without an expression are left out.
        k: number of clusters.
        seed: seed of k-means.

    Returns:
        "probe/ROLE", the accuracy averaged over classes, and "clusters/ROLE", the share of information, for
        each role, with their means as "probe" and "clusters".

    Raises:
        ValueError: fewer than two questions have an expression.
    """
    parsed = [(question, found) for question in questions if (found := syntax.parse(question)) is not None]
    if len(parsed) < 2:
        raise ValueError(f"questions: got {len(parsed)} with an expression, expected at least 2")
    states = vectors(model, params, [question for question, _ in parsed])
    halves = [_digits(states[half::2], [of for _, of in parsed[half::2]]) for half in (0, 1)]
    (train, known), (test, labels) = halves
    centroids, _ = roles.cluster(train, k, seed=seed)
    nearest = np.argmin(((test[:, None] - centroids[None]) ** 2).sum(axis=-1), axis=1)
    found = {}
    for name in READ:
        found[f"probe/{name}"] = linear_probe((train, known[name]), (test, labels[name]))
        found[f"clusters/{name}"] = information(nearest, labels[name])
    for how in ("probe", "clusters"):
        found[how] = float(np.mean([found[f"{how}/{name}"] for name in READ]))
    return found


def _digits(
    states: Float[np.ndarray, "N S F"], parsed: Sequence[syntax.Syntax]
) -> tuple[Float[np.ndarray, "M F"], Mapping[str, Int[np.ndarray, "M"]]]:
    """Returns the vectors at digits, and their labels by role."""
    places = [np.flatnonzero(of.kind == 0) for of in parsed]
    of_digits = [row[at] for row, at in zip(states, places, strict=True)]
    labels = {
        name: np.concatenate([getattr(of, name)[at] for of, at in zip(parsed, places, strict=True)])
        for name in READ
    }
    return np.concatenate(of_digits), labels
