"""The TP-Transformer of Schlag et al. (2019): attention that binds retrieved values to learned roles.

`model` has both architectures, `convert` reads the authors' checkpoints, `decoding` generates answers,
`roles` clusters role vectors, `objective` is the loss. `mathematics` is the dataset and `evaluation` the
paper's metric; import these two explicitly, because they need more than JAX.
"""

import logic_zoo.own_kernels  # noqa: F401 -- raises ImportError if another package has its place
from tp_transformer import convert, decoding, objective, roles
from tp_transformer.attention import MultiHeadAttention, TPMultiHeadAttention
from tp_transformer.decoding import Beams, beam_search, greedy_decode
from tp_transformer.model import TPTransformer, Traced, Transformer, apply_traced

__all__ = [
    "Beams",
    "MultiHeadAttention",
    "TPMultiHeadAttention",
    "TPTransformer",
    "Traced",
    "Transformer",
    "apply_traced",
    "beam_search",
    "convert",
    "decoding",
    "greedy_decode",
    "objective",
    "roles",
]
