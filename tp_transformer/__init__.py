"""The TP-Transformer of Schlag et al. (2019): attention that binds what it retrieves to learned roles.

`model` has both architectures, `convert` reads the authors' checkpoints, `decoding` gives answers, `roles`
says what role vectors stand for, `objective` is the loss. `mathematics` is the data set and `evaluation` the
paper's measure: import those by name, they need more than JAX.
"""

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
