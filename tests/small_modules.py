"""A small module of every public kind, with the arguments of a call."""

import dataclasses
import inspect
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

import folnet
import simplicial
import tp_transformer
from llrnn import cells, logic, memory
from llrnn.model import RecurrentModel
from simplicial import blocks
from tests.simplicial.small import draw


@dataclasses.dataclass
class Row:
    """A small module and the arguments of a call."""

    module: nn.Module
    inputs: tuple[Any, ...]
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def __post_init__(self):
        """Makes JAX arrays of NumPy's, as annotations ask."""
        self.inputs, self.options = jax.tree.map(jnp.asarray, (self.inputs, self.options))

    @property
    def with_dropout(self) -> dict[str, Any]:
        """The options, with dropout if the module has it."""
        known = inspect.signature(type(self.module).__call__).parameters
        return dict(self.options) | ({"deterministic": False} if "deterministic" in known else {})


X = draw(0, 2, 3, 8).astype(np.float32)
VIRTUAL = draw(1, 2, 2, 8).astype(np.float32)
ENTITY_MASK = np.array([[True, True, False], [True, True, True]])
BOARD = np.random.default_rng(2).integers(0, 256, (2, 5, 6, 3), np.uint8)
SOURCE = np.array([[3, 4, 5, 0], [5, 6, 3, 4]])
TARGET = np.array([[1, 4, 3], [1, 6, 0]])
TEXT = np.array([[1, 2, 3, 4, 0], [5, 6, 7, 8, 2]])
SEGMENTS = np.array([[0, 0, 1, 1, 1], [0, 1, 1, 1, 1]])
REAL = TEXT != 0
STEPS = draw(3, 2, 4, 5).astype(np.float32)

ONE = simplicial.OneSimplicialAttention(num_heads=2, features=8)
TWO = simplicial.TwoSimplicialAttention(num_heads=1, features=6)
FEED_FORWARD = blocks.FeedForward(hidden=7, features=8)
TP = {
    "vocab_size": 7, "features": 8, "filter_features": 12, "num_heads": 2, "num_layers": 1,
    "dropout_rate": 0.2,
}  # fmt: skip
FOLNET = folnet.FOLNetConfig(
    vocab_size=11, hidden_size=8, relation_size=4, num_hidden_layers=1, num_attention_heads=2, head_size=3,
    intermediate_size=10, relation_intermediate_size=6, max_distance=3, cjoin="paper",
)  # fmt: skip
RELEASED = FOLNET.replace(cjoin="released")
FEW = FOLNET.replace(operators="j.at")  # traces in half the time
BERT = folnet.TransformerConfig(
    vocab_size=11, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, head_size=4,
    intermediate_size=10, max_position_embeddings=8,
)  # fmt: skip
TEXTS = (TEXT, SEGMENTS, REAL)
ATOM = logic.Atom("A", 4)


def ones(shapes: Any) -> Any:
    """Returns arrays of the given shapes."""
    return jax.tree.map(lambda leaf: jnp.asarray(np.ones(leaf.shape, leaf.dtype)), shapes)


def stepped(cell: nn.RNNCellBase) -> Row:
    """Returns a row with one step of a cell, from a state of the right shape."""
    inputs = STEPS[:, 0]
    carry = jax.eval_shape(lambda: cell.initialize_carry(jax.random.key(0), inputs.shape))
    return Row(cell, (ones(carry), inputs))


NTM: dict[str, Any] = {"features": 6, "memory_size": 5}
ROWS: dict[type[nn.Module], Row] = {
    simplicial.OneSimplicialAttention: Row(ONE, (X,), {"context_mask": ENTITY_MASK}),
    simplicial.TwoSimplicialAttention: Row(TWO, (X,)),
    simplicial.RelationalBlock: Row(
        simplicial.RelationalBlock(ONE, FEED_FORWARD), (X,), {"entity_mask": ENTITY_MASK}
    ),
    simplicial.SimplicialBlock: Row(
        simplicial.SimplicialBlock(ONE, TWO, FEED_FORWARD), (X, VIRTUAL), {"entity_mask": ENTITY_MASK}
    ),
    simplicial.SimplicialTransformer: Row(
        simplicial.SimplicialTransformer(2, 2, 8, two_simplicial_features=6),
        (X,),
        {"entity_mask": ENTITY_MASK, "pair_mask": ~np.eye(2, dtype=bool)},
    ),
    simplicial.TrilinearAttention: Row(
        simplicial.TrilinearAttention(2, 6, num_groups=1, window1=2, window2=3, logit="signed"), (X,)
    ),
    simplicial.RotaryAttention: Row(simplicial.RotaryAttention(2, 8), (X,)),
    simplicial.DecoderBlock: Row(
        simplicial.DecoderBlock(simplicial.RotaryAttention(2, 8), FEED_FORWARD), (X,)
    ),
    simplicial.SimplicialDecoder: Row(
        simplicial.SimplicialDecoder(7, features=8, num_layers=2, num_heads=2, hidden=5, every=2), (SOURCE,)
    ),
    simplicial.Agent: Row(
        simplicial.Agent(
            features=8, two_simplicial_features=6, conv_features=(3, 4), head_features=(7,), num_blocks=1
        ),
        (BOARD,),
    ),
    tp_transformer.MultiHeadAttention: Row(
        tp_transformer.MultiHeadAttention(2, dropout_rate=0.2), (X,), {"mask": ENTITY_MASK[:, None, None]}
    ),
    tp_transformer.TPMultiHeadAttention: Row(
        tp_transformer.TPMultiHeadAttention(2, dropout_rate=0.2), (X,), {"mask": ENTITY_MASK[:, None, None]}
    ),
    tp_transformer.TPTransformer: Row(tp_transformer.TPTransformer(**TP), (SOURCE, TARGET)),
    tp_transformer.Transformer: Row(tp_transformer.Transformer(**TP), (SOURCE, TARGET)),
    folnet.FOLNet: Row(folnet.FOLNet(RELEASED), TEXTS),
    folnet.FOLNetDecoder: Row(folnet.FOLNetDecoder(FOLNET), TEXTS),
    folnet.FOLNetForCausalLM: Row(folnet.FOLNetForCausalLM(FEW), TEXTS),
    folnet.FOLNetForConditionalGeneration: Row(
        folnet.FOLNetForConditionalGeneration(FEW), (TEXT, TARGET, SEGMENTS, REAL)
    ),
    folnet.FOLNetForMaskedLM: Row(folnet.FOLNetForMaskedLM(FEW), TEXTS),
    folnet.FOLNetForMultipleChoice: Row(
        folnet.FOLNetForMultipleChoice(FEW), tuple(text[None] for text in TEXTS)
    ),
    folnet.FOLNetForPreTraining: Row(
        folnet.FOLNetForPreTraining(FEW), TEXTS, {"mlm_positions": np.array([[0, 2], [1, 4]])}
    ),
    folnet.FOLNetForQuestionAnswering: Row(folnet.FOLNetForQuestionAnswering(FEW), TEXTS),
    folnet.FOLNetForSequenceClassification: Row(folnet.FOLNetForSequenceClassification(FEW), TEXTS),
    folnet.FOLNetForTokenClassification: Row(folnet.FOLNetForTokenClassification(FEW), TEXTS),
    folnet.LoopedFOLNet: Row(folnet.LoopedFOLNet(FEW, 2), TEXTS),
    folnet.RelationHead: Row(folnet.RelationHead(FEW, 5), (draw(0, 2, 4, 3, 3), draw(1, 3, 4))),
    folnet.Transformer: Row(folnet.Transformer(BERT), TEXTS),
    cells.ElmanCell: stepped(cells.ElmanCell(features=6)),
    cells.SecondOrderCell: stepped(cells.SecondOrderCell(features=6)),
    cells.MultiplicativeCell: stepped(cells.MultiplicativeCell(features=6)),
    cells.HigherOrderCell: stepped(cells.HigherOrderCell(features=6)),
    cells.LLRNNCell: stepped(
        cells.LLRNNCell(
            master=logic.evaluate(ATOM),
            inputs=(cells.Command("powers", logic.numeral_span(2, ATOM)), cells.Input("operators")),
        )
    ),
    memory.NTMCell: stepped(memory.NTMCell(**NTM)),
    memory.DihedralNTMCell: stepped(memory.DihedralNTMCell(**NTM)),
    memory.OperatorNTMCell: stepped(memory.OperatorNTMCell(**NTM)),
    memory.PatternNTMCell: stepped(memory.PatternNTMCell(**NTM, program_size=4)),
    memory.MultiplePatternNTMCell: stepped(memory.MultiplePatternNTMCell(**NTM, program_size=4)),
    memory.PolynomialStepNTMCell: stepped(memory.PolynomialStepNTMCell(**NTM, program_size=4)),
    memory.StackRNNCell: stepped(memory.StackRNNCell(features=6, memory_size=4, memory_width=3)),
    memory.TapeRNNCell: stepped(memory.TapeRNNCell(features=6, memory_size=4, memory_width=3)),
    RecurrentModel: Row(RecurrentModel(cells.SecondOrderCell(features=6), num_outputs=3), (STEPS,)),
}
