"""Transformers without a logical bias: pre-LN, and with one layer in loops."""

from experiments import baselines
from experiments.baselines.transformer import Positions
from experiments.reasoning.models.base import Encoded, Model, Sizes
from experiments.reasoning.tasks.base import Task

LOOPS = 6
"""How often the looped Transformer applies its layer: paths of 2^6 edges can be composed, or 6 steps made."""


def _order(task: Task) -> dict[str, Positions | bool]:
    """Sequences have rotary positions, defined at any length, and an answer depends on what precedes it."""
    return {"positions": "rotary", "causal": True} if task.kind == "sequence" else {}


def _pre_ln(task: Task, sizes: Sizes) -> Encoded:
    settings: dict = _order(task)
    encoder = baselines.Transformer(sizes.num_layers, sizes.num_heads, sizes.hidden, **settings)
    return Encoded(task, encoder, sizes.features)


def _looped(task: Task, sizes: Sizes) -> Encoded:
    settings: dict = _order(task)
    encoder = baselines.LoopedTransformer(1, sizes.num_heads, sizes.hidden, num_loops=LOOPS, **settings)
    return Encoded(task, encoder, sizes.features)


MODELS = {"transformer": Model(_pre_ln), "looped_transformer": Model(_looped)}
