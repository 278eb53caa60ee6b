"""A model that says what every person is to every other, and its loss.

Axis letters: B batch; T tokens; C classes, the relations and "unrelated".
"""

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np
import optax
from flax import linen as nn
from jaxtyping import Array, Float, Int

from experiments import runtime
from experiments.kinship.parts import PairConfig
from folnet import FOLNetConfig, kinship
from folnet.looped import LoopedFOLNet, RelationHead
from kernels.normalization import normalize

CLASSES = len(kinship.RELATIONS) + 1
ASKED = np.array([int(relation) for relation in kinship.TARGETS])
"""The classes that answer questions."""


class PairClassifier(nn.Module):
    """A looped FOLNet whose last binary atoms are read as relations.

    Attributes:
        config: settings of the FOLNet, whose first relations are those of `folnet.kinship`.
        pairs: numbers of loops, and how relations are read.
    """

    config: FOLNetConfig
    pairs: PairConfig

    def setup(self):
        self.folnet = LoopedFOLNet(self.config, self.pairs.loops, self.pairs.injection)
        self.head = RelationHead(self.config, CLASSES, self.pairs.sharpness)

    def __call__(self, *texts: Any, **named: Any) -> list[Float[Array, "B T T C"]]:
        """Returns the logits of all pairs after each loop; arguments are those of `LoopedFOLNet`."""
        states = self.folnet(*texts, **named)
        atoms = self.folnet.embeddings.relation[: kinship.NUM_EDGES]
        return [self.head(relation, atoms) for _, relation in states]

    def given(self, relations: Float[Array, "B T T D2"]) -> Float[Array, "B T T C"]:
        """Returns the logits of pairs about which `relation_embeds` says all that is known."""
        base = normalize(jnp.moveaxis(relations, -1, 1), self.config.layer_norm_eps, axis=1)
        return self.head(base, self.folnet.embeddings.relation[: kinship.NUM_EDGES])


def asked(logits: Float[Array, "B T T C"], query: Int[Array, "B 2"]) -> Float[Array, "B C"]:
    """Returns the logits of the pair that each question is about."""
    return logits[jnp.arange(logits.shape[0]), query[:, 0], query[:, 1]]


def loss(
    every: list[Float[Array, "B T T C"]],
    batch: Mapping[str, Any],
    config: PairConfig,
    ahead: int | Int[Array, ""] = 0,
) -> runtime.Sums:
    """Returns the loss of the logits after each loop, summed over examples.

    It is the cross-entropy of the question and, if all pairs are supervised, the mean one of the labelled
    pairs of the example, each averaged over the loops from the second, the first that can have composed three
    facts. The first of `every` followed `ahead` loops. If the batch says which facts a story states, the
    first are the logits before the loops, and their mean cross-entropy at these facts is added.
    """
    answers = jnp.asarray(ASKED)[batch["labels"]]
    metrics = {}
    read = jnp.zeros(())
    if "facts" in batch:
        stated, *every = every
        facts = batch["facts"]
        of_facts = optax.softmax_cross_entropy_with_integer_labels(stated, jnp.maximum(facts, 0))
        read = jnp.sum(_mean_of(of_facts, facts))
        hits = jnp.sum((facts >= 0) & (jnp.argmax(stated, axis=-1) == facts))
        metrics["facts"] = hits, jnp.sum(facts >= 0)
    losses = []
    for logits in every:
        of_question = optax.softmax_cross_entropy_with_integer_labels(asked(logits, batch["query"]), answers)
        losses.append(of_question)
        if config.supervised:
            labels = batch["pairs"]
            of_pairs = optax.softmax_cross_entropy_with_integer_labels(logits, jnp.maximum(labels, 0))
            losses[-1] += _mean_of(of_pairs, labels)
    taught = (jnp.arange(len(every)) + ahead > 0) | (len(every) == 1)
    total = jnp.sum(jnp.stack(losses) * taught[:, None]) / jnp.sum(taught)
    chosen = jnp.argmax(asked(every[-1], batch["query"])[:, ASKED], axis=-1)
    count = len(answers)
    right = jnp.sum(chosen == batch["labels"])
    return runtime.Sums(total + read, count, {"accuracy": (right, count), **metrics})


def _mean_of(losses: Float[Array, "B T T"], labels: Int[Array, "B T T"]) -> Float[Array, "B"]:
    """Returns each example's mean over the pairs with a label."""
    weights = labels >= 0
    return jnp.sum(weights * losses, axis=(1, 2)) / jnp.maximum(jnp.sum(weights, axis=(1, 2)), 1)
