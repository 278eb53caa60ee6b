"""2-simplicial attention: to all pairs of elements, or to pairs of virtual entities."""

from experiments.baselines.layers import Stack
from experiments.reasoning.models.base import Encoded, Model, Sizes
from experiments.reasoning.tasks.base import Task
from simplicial import SimplicialTransformer, TrilinearAttention

VIRTUAL_ENTITIES = 4


def _all_pairs(task: Task, sizes: Sizes) -> Encoded:
    """The trilinear logit of Roy et al. (2025); in sequences their determinant, with rotary positions."""
    is_ordered = task.kind == "sequence"
    attention = TrilinearAttention(
        num_heads=sizes.num_heads,
        features=sizes.features,
        causal=is_ordered,
        logit="signed" if is_ordered else "trilinear",
        rotary=is_ordered,
        parent=None,
    )
    encoder = Stack(attention, sizes.num_layers, sizes.hidden)
    return Encoded(task, encoder, sizes.features)


def _virtual(task: Task, sizes: Sizes) -> Encoded:
    """The blocks of Clift et al. (2020), which share their weights; B makes the most of the parameters."""
    encoder = SimplicialTransformer(
        num_virtual_entities=VIRTUAL_ENTITIES,
        num_blocks=sizes.num_layers,
        features=sizes.features,
        num_heads=sizes.num_heads,
        two_simplicial_features=sizes.hidden,
    )
    return Encoded(task, encoder, sizes.features)


MODELS = {
    "simplicial": Model(_all_pairs, most=41),  # a step on 64 problems of 64 elements takes 1.7 s
    "simplicial_virtual": Model(_virtual, kinds=("set", "graph")),
}
