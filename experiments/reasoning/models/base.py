"""What a model of the suite is: a builder, the kinds of inputs it takes, and the logits that it returns.

Axis letters: B batch; N elements; D features; C classes.
"""

import dataclasses
from collections.abc import Callable

import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Float

from experiments.baselines.layers import Dense
from experiments.reasoning.tasks.base import Kind, Problems, Task

ALL_KINDS: tuple[Kind, ...] = ("set", "sequence", "graph")


@dataclasses.dataclass(frozen=True)
class Sizes:
    """The sizes that all models have.

    Attributes:
        features: D.
        num_layers: number of layers; models with one set of weights may have another.
        num_heads: heads of every attention.
        hidden: hidden size of the feed-forward layers, by which models are given equal parameters.
    """

    features: int
    num_layers: int
    num_heads: int
    hidden: int


@dataclasses.dataclass(frozen=True)
class Model:
    """A model of the suite.

    Attributes:
        build: makes the module; it takes `Problems` and returns the logits of the classes of what a task
            asks, [B, N, C] or in a graph [B, N, N, C].
        kinds: of the tasks that it fits.
        most: the largest `Task.size` that it can afford; 0 for no limit.
        unread: a pattern that is found in the paths of parameters on which the logits do not depend; "" for
            none.
    """

    build: Callable[[Task, Sizes], nn.Module]
    kinds: tuple[Kind, ...] = ALL_KINDS
    most: int = 0
    unread: Callable[[Task, Sizes], str] = lambda task, sizes: ""

    def fits(self, task: Task) -> bool:
        """Returns whether it takes the task's problems."""
        return task.kind in self.kinds and not 0 < self.most < task.size


class Encoded(nn.Module):
    """An encoder of embedded tokens, and a class for each.

    A graph is given as a set of its N^2 ordered pairs, each with its relation and the tokens of both nodes,
    as Kozachinskiy et al. (2025) give relations to Transformers. Whatever has no order of its own gets no
    positions here: encoders add those of sequences.

    Attributes:
        task: of the problems.
        encoder: from [B, T, D] to [B, T, D].
        features: D.
    """

    task: Task
    encoder: nn.Module
    features: int

    @nn.compact
    def __call__(self, problems: Problems) -> Float[Array, "B *N C"]:
        """Returns the logits."""
        if problems.relations is None:
            embedded = nn.Embed(self.task.vocabulary, self.features, name="tokens")(problems.tokens)
            return Dense(self.task.classes, name="classes")(self.encoder(embedded))
        batch, size = problems.tokens.shape
        first, second = (
            nn.Embed(self.task.vocabulary, self.features, name=name)(problems.tokens)
            for name in ("first", "second")
        )
        pairs = nn.Embed(2 * (self.task.relations + 1), self.features, name="relations")(kinds_of(problems))
        embedded = pairs + first[:, :, None] + second[:, None]
        states = self.encoder(embedded.reshape(batch, size * size, self.features))
        return Dense(self.task.classes, name="classes")(states).reshape(batch, size, size, -1)


def kinds_of(problems: Problems) -> Array:
    """Returns a number for the relation of each pair, none included, and for whether both are one node."""
    assert problems.relations is not None
    same = jnp.eye(problems.tokens.shape[1], dtype=jnp.int32)[None]
    return 2 * (problems.relations + 1) + same
