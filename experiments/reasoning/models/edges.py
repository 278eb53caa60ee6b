"""The Edge Transformer, which composes pairs by triangular attention: Bergen et al. (2021)."""

from flax import linen as nn
from jaxtyping import Array, Float

from experiments import baselines
from experiments.reasoning.models.base import Model, Sizes, kinds_of
from experiments.reasoning.tasks.base import Problems, Task


class Edges(nn.Module):
    """An Edge Transformer whose states of pairs are read as classes.

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
        encoder = baselines.EdgeTransformer(sizes.num_layers, sizes.num_heads, sizes.hidden)
        return nn.Dense(self.task.classes, name="classes")(encoder(embedding(kinds_of(problems), nodes)))


EDGE_TRANSFORMER = Model(Edges, kinds=("graph",))
