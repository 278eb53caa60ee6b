"""The models of the suite. To add one, write a file with a `Model` and list it here."""

from experiments.reasoning.models import edges, folnet, recurrent, simplicial, tp_transformer, transformers
from experiments.reasoning.models.base import Model, Sizes

__all__ = ["MODELS", "Model", "Sizes"]

MODELS: dict[str, Model] = {
    "simplicial": simplicial.ALL_PAIRS,
    "simplicial_virtual": simplicial.VIRTUAL,
    "tp_transformer": tp_transformer.TP_TRANSFORMER,
    "folnet": folnet.FOLNET,
    "folnet_without_trans": folnet.WITHOUT_TRANS,
    "second_order": recurrent.SECOND_ORDER,
    "transformer": transformers.PRE_LN,
    "looped_transformer": transformers.LOOPED,
    "edge_transformer": edges.EDGE_TRANSFORMER,
    "delta_product": recurrent.DELTA_PRODUCT,
    "lstm": recurrent.LSTM,
}
