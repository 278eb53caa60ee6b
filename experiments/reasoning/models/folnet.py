"""FOLNet, whose atoms of pairs are its own: Chen (2023)."""

import functools
from typing import Any

import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Float

from experiments.baselines.layers import Dense
from experiments.reasoning.models.base import Model, Sizes, kinds_of
from experiments.reasoning.tasks.base import Problems, Task
from folnet import FOLNet, FOLNetConfig


class Deduced(nn.Module):
    """A FOLNet whose properties or, in a graph, relations are read as classes.

    The relations of a graph are given as base atoms; sequences have the paper's relative positions.

    Attributes:
        task: of the problems.
        config: settings of the FOLNet.
    """

    task: Task
    config: FOLNetConfig

    @nn.compact
    def __call__(self, problems: Problems) -> Float[Array, "B *N C"]:
        """Returns the logits."""
        relations = None if problems.relations is None else kinds_of(problems)
        deduced = FOLNet(self.config)(problems.tokens, relation_ids=relations)
        asked: Any = deduced.relation_hidden_state if self.task.asks_pairs else deduced.last_hidden_state
        return Dense(self.task.classes, name="classes")(asked.astype(jnp.float32))


def _build(operators: str, task: Task, sizes: Sizes) -> Deduced:
    config = FOLNetConfig(
        vocab_size=task.vocabulary,
        relation_vocab_size=2 * (task.relations + 1) if task.asks_pairs else 0,
        hidden_size=sizes.features,
        relation_size=max(sizes.features // 2, 1),
        num_hidden_layers=sizes.num_layers,
        num_attention_heads=sizes.num_heads,
        head_size=max(sizes.features // sizes.num_heads, 1),
        intermediate_size=sizes.hidden,
        relation_intermediate_size=sizes.features,
        operators=operators,
        absolute_position=False,
        relative_position="folnet" if task.kind == "sequence" else "none",
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        initializer_range=-1.0,
    )
    return Deduced(task, config)


def _unread(task: Task, sizes: Sizes) -> str:
    """Returns a pattern of the parameters of the pooler, and of what the last layer finds and nobody reads.

    The first layer of a set has relations that are 0, so that some weights are multiplied by nothing else.
    """
    branch = "join|cjoin|mu|bool_unary" if task.asks_pairs else "assoc|prod|trans|bool_binary"
    unread = ["/pooler/", f"/layers_{sizes.num_layers - 1}/({branch})/"]
    if task.kind == "set":
        unread.append("/layers_0/(cjoin/premise|join/kernel|mu/.*|prod/premise|trans/.*)/weight")
    return "|".join(unread)


MODELS = {
    "folnet": Model(functools.partial(_build, "jmc.atp"), unread=_unread),
    "folnet_without_trans": Model(functools.partial(_build, "jmc.ap"), unread=_unread),
}
