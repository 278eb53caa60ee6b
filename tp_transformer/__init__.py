"""The TP-Transformer of Schlag et al. (2019): attention that binds what it retrieves to learned roles."""

from tp_transformer.attention import MultiHeadAttention, TPMultiHeadAttention
from tp_transformer.model import TPTransformer, Transformer, apply_traced

__all__ = [
    "MultiHeadAttention",
    "TPMultiHeadAttention",
    "TPTransformer",
    "Transformer",
    "apply_traced",
]
