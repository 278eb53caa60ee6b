"""Baselines that several claims share."""

from experiments.baselines.edge_transformer import EdgeEmbedding, EdgeTransformer
from experiments.baselines.matching import count, matched
from experiments.baselines.relation_aware import RelationAwareTransformer
from experiments.baselines.rgcn import RGCN, adjacency_of
from experiments.baselines.transformer import LoopedTransformer, Transformer

__all__ = [
    "RGCN",
    "EdgeEmbedding",
    "EdgeTransformer",
    "LoopedTransformer",
    "RelationAwareTransformer",
    "Transformer",
    "adjacency_of",
    "count",
    "matched",
]
