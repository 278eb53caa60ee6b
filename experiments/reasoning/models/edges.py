"""The Edge Transformer, which composes pairs by triangular attention: Bergen et al. (2021)."""

from flax import linen as nn
from jaxtyping import Array, Float

from experiments import baselines
from experiments.baselines.layers import Dense
from experiments.reasoning.models.base import Model, Sizes, kinds_of
from experiments.reasoning.tasks.base import Problems, Task

ROUNDS = 4
"""How often the layer is applied; the authors' code for relational reasoning has 8 rounds of one layer."""


class Edges(nn.Module):
    """An Edge Transformer of one layer, applied `ROUNDS` times, whose states of pairs are read as classes.

    Attributes:
        task: of the problems.
        sizes: of the model.
    """

    task: Task
    sizes: Sizes

    @nn.compact
    def __call__(self, problems: Problems) -> Float[Array, "B N N C"]:
        """Returns the logits."""
        sizes = self.sizes
        nodes = nn.Embed(self.task.vocabulary, sizes.features, name="tokens")(problems.tokens)
        embedding = baselines.EdgeEmbedding(sizes.features, 2 * (self.task.relations + 1))
        layer = baselines.EdgeTransformer(1, sizes.num_heads, sizes.hidden)
        states = embedding(kinds_of(problems), nodes)
        for _ in range(ROUNDS):
            states = layer(states)
        return Dense(self.task.classes, name="classes")(states)


MODELS = {"edge_transformer": Model(Edges, kinds=("graph",))}
