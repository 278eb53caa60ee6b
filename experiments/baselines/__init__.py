"""Baselines that several claims share."""

from experiments.baselines.matching import count, matched
from experiments.baselines.transformer import LoopedTransformer, Transformer

__all__ = ["LoopedTransformer", "Transformer", "count", "matched"]
