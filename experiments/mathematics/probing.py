"""How much of a symbol's syntactic role is in a model's vectors: by a linear probe, and by clusters.

The vectors are at one place of all models: the states that the attention of the encoder's last layer reads,
and of a model that binds roles, the role vectors of all heads, which it computes from these; both have as
many features as the model. Role vectors are a linear map of the states, so that a linear probe finds nothing
in them that is not in the states; clusters may. Questions are divided in two halves:
the probe is fitted to one and scored on the other, and so are the clusters. The same probe is fitted to what
the question shows without a model, the symbols and their positions (`controls`), since vectors say something
about syntax only as far as they exceed that.
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

READ = ("place", "depth", "operand", "operator", "inverse")
"""Roles that are read at digits. `controls` measures how far the digits themselves show them."""
CONTROLS = {"symbol_position": (0,), "neighbours": (-1, 0, 1), "window": (-3, -2, -1, 0, 1, 2, 3)}
"""What a control sees of a question besides the position: the symbols at these places from the digit."""


def vectors(
    model: EncoderDecoder, params: Any, questions: Sequence[str], *, states: bool = False
) -> Float[np.ndarray, "N S F"]:
    """Returns vectors of the encoder's last layer at the characters of questions, without the start symbol.

    They are role vectors; of a model that has none, and with `states`, the states that its attention reads.
    """
    source = jnp.asarray(mathematics.DEFAULT.encode_batch(questions))
    last, norm = f"encoder_{model.num_layers - 1}", "attention_norm"

    @jax.jit
    def compute(params, source):
        if model.binds_roles and not states:
            found = encoder_attention(model, {"params": params}, source)[-1].roles
            return cast(jax.Array, found).reshape(*source.shape, model.features)
        _, kept = model.apply(
            {"params": params},
            source,
            method="encode",
            mutable=["intermediates"],
            capture_intermediates=lambda module, _: module.path == (last, norm),
        )
        return kept["intermediates"][last][norm]["__call__"][0]

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


def parsed(questions: Sequence[str]) -> dict[str, syntax.Syntax]:
    """Returns the questions that have an expression, with its roles; raises ValueError for fewer than two."""
    found = {question: of for question in questions if (of := syntax.parse(question)) is not None}
    if len(found) < 2:
        raise ValueError(f"questions: got {len(found)} with an expression, expected at least 2")
    return found


def read(
    model: EncoderDecoder,
    params: Any,
    questions: Sequence[str],
    *,
    states: bool = False,
    k: int = 20,
    seed: int = 0,
) -> dict[str, float]:
    """Measures what the model's vectors tell about the roles of the digits of expressions.

    Args:
        model: the model.
        params: its parameters.
        questions: different questions; those without an expression are left out.
        states: as of `vectors`.
        k: number of clusters.
        seed: seed of k-means.

    Returns:
        "probe/ROLE", the accuracy averaged over classes, and "clusters/ROLE", the share of information, for
        each role, with their means as "probe" and "clusters".

    Raises:
        ValueError: fewer than two questions have an expression.
    """
    found = parsed(questions)
    (train, known), (test, labels) = _halves(
        vectors(model, params, list(found), states=states), list(found.values())
    )
    centroids, _ = roles.cluster(train, k, seed=seed)
    nearest = np.argmin(((test[:, None] - centroids[None]) ** 2).sum(axis=-1), axis=1)
    clusters = {name: information(nearest, labels[name]) for name in READ}
    return _probed((train, known), (test, labels)) | _with_mean("clusters", clusters)


def controls(questions: Sequence[str]) -> dict[str, float]:
    """Measures what a probe reads from one-hot symbols and absolute positions, without a model.

    Args:
        questions: as of `read`.

    Returns:
        "CONTROL/probe/ROLE" and "CONTROL/probe" as `read` returns them, for each of `CONTROLS`.

    Raises:
        ValueError: fewer than two questions have an expression.
    """
    found = parsed(questions)
    ids = mathematics.DEFAULT.encode_batch(list(found))
    positions = np.broadcast_to(np.eye(ids.shape[1]), (*ids.shape, ids.shape[1]))
    measured = {}
    for control, places in CONTROLS.items():
        symbols = [np.eye(mathematics.DEFAULT.size)[np.roll(ids, -place, axis=1)] for place in places]
        shown = np.concatenate([positions, *symbols], axis=-1)[:, 1:]
        of_control = _probed(*_halves(shown, list(found.values())))
        measured |= {f"{control}/{name}": value for name, value in of_control.items()}
    return measured


type Digits = tuple[Float[np.ndarray, "M F"], Mapping[str, Int[np.ndarray, "M"]]]
"""Vectors at digits, and their labels by role."""


def _probed(train: Digits, test: Digits) -> dict[str, float]:
    accuracies = {name: linear_probe((train[0], train[1][name]), (test[0], test[1][name])) for name in READ}
    return _with_mean("probe", accuracies)


def _with_mean(how: str, values: Mapping[str, float]) -> dict[str, float]:
    return {f"{how}/{name}": value for name, value in values.items()} | {
        how: float(np.mean([*values.values()]))
    }


def _halves(states: Float[np.ndarray, "N S F"], found: Sequence[syntax.Syntax]) -> tuple[Digits, Digits]:
    """Returns the digits of every second question, and those of the others."""
    return _digits(states[::2], found[::2]), _digits(states[1::2], found[1::2])


def _digits(states: Float[np.ndarray, "N S F"], found: Sequence[syntax.Syntax]) -> Digits:
    places = [np.flatnonzero(of.kind == 0) for of in found]
    of_digits = [row[at] for row, at in zip(states, places, strict=True)]
    labels = {
        name: np.concatenate([getattr(of, name)[at] for of, at in zip(found, places, strict=True)])
        for name in READ
    }
    return np.concatenate(of_digits), labels
