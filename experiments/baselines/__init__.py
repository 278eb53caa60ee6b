"""Baselines that several claims share.

An encoder takes embedded inputs [B, N, D] and returns states [B, N, D]; a mask [B, N] is False at padding.
Embeddings and read-outs are left to the task. `matched` finds the width that gives a model a number of
parameters.

| model | inputs | source |
|---|---|---|
| `Transformer` | sets; sequences with `positions` or `causal` | Vaswani et al. 2017, Su et al. 2021 |
| `LoopedTransformer` | as above; more loops at test time | Yang et al. 2024, Giannou et al. 2023 |
| `RelationAwareTransformer` | graphs: nodes, and a relation per pair [B, N, N] | Shaw et al. 2018 |
| `EdgeTransformer` | graphs: edges [B, N, N, D], as from `EdgeEmbedding` | Bergen et al. 2021 |
| `RGCN` | graphs: nodes, and adjacency [B, R, N, N], as from `adjacency_of` | Schlichtkrull et al. 2018 |
| `GatedTransformer` | questions and answers, as `tp_transformer.TPTransformer` | Qiu et al. 2025 |
| `LSTM` | sequences | Hochreiter and Schmidhuber 1997 |
| `RecurrentEncoder(FullMatrixCell(..))` | sequences | Merrill et al. 2024, Fan et al. 2024 |
| `RecurrentEncoder(DeltaNetCell(..), hidden=..)` | sequences | Yang et al. 2024, Grazzi et al. 2025 |
| `RecurrentEncoder(DeltaProductCell(..), hidden=..)` | sequences | Siems et al. 2025 |
| `RecurrentEncoder(ContentNTMCell(..))` | sequences | Graves et al. 2014 |
| `RecurrentEncoder(MLPOperatorCell(..))` | sequences | a control for linear logic cells |

The cells are `flax.linen.RNNCellBase`s and also work in `flax.linen.RNN`; `RecurrentEncoder` takes any such
cell, including those of `llrnn`.
"""

from experiments.baselines.edge_transformer import EdgeEmbedding, EdgeTransformer
from experiments.baselines.gated import GatedTransformer
from experiments.baselines.linear_rnn import DeltaNetCell, DeltaProductCell, FullMatrixCell
from experiments.baselines.matching import count, matched
from experiments.baselines.mlp_operator import MLPOperatorCell
from experiments.baselines.ntm import ContentNTMCell, NTMCarry
from experiments.baselines.recurrent import LSTM, RecurrentEncoder
from experiments.baselines.relation_aware import RelationAwareTransformer
from experiments.baselines.rgcn import RGCN, adjacency_of
from experiments.baselines.transformer import LoopedTransformer, Transformer

__all__ = [
    "LSTM",
    "RGCN",
    "ContentNTMCell",
    "DeltaNetCell",
    "DeltaProductCell",
    "EdgeEmbedding",
    "EdgeTransformer",
    "FullMatrixCell",
    "GatedTransformer",
    "LoopedTransformer",
    "MLPOperatorCell",
    "NTMCarry",
    "RecurrentEncoder",
    "RelationAwareTransformer",
    "Transformer",
    "adjacency_of",
    "count",
    "matched",
]
