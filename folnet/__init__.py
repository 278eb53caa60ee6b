"""FOLNet (Chen 2023): first-order logic as a network, with two branches of learned Horn clauses.

`model` is the encoder and `heads` its task heads; `operators` defines the seven neural logic operators.
`decoder`, `encoder_decoder` and `text_heads` are the models that write text, and `generation` runs them.
`looped` applies the same layers again and again. `objective` and `text_objective` hold the losses, and
`convert` reads the authors' checkpoints. Every model class can save and load itself.
"""

import logic_zoo.own_kernels  # noqa: F401 -- raises ImportError if another package has its place
from folnet import convert, kinship, objective, operators, positions, tasks, text_objective
from folnet.configuration import BASE, LARGE, FOLNetConfig, table3
from folnet.decoder import DecoderOutput, FOLNetDecoder
from folnet.generation import Generated, Sampling, generate, generate_from
from folnet.heads import (
    FOLNetForMaskedLM,
    FOLNetForMultipleChoice,
    FOLNetForPreTraining,
    FOLNetForQuestionAnswering,
    FOLNetForSequenceClassification,
    FOLNetForTokenClassification,
)
from folnet.looped import LoopedFOLNet, RelationHead
from folnet.model import FOLNet, FOLNetOutput, check_inputs
from folnet.text_heads import (
    CausalLMOutput,
    FOLNetForCausalLM,
    FOLNetForConditionalGeneration,
    Seq2SeqLMOutput,
)
from folnet.transformer import Transformer, matched_to
from folnet.transformer_configuration import BERT_BASE, TransformerConfig

__all__ = [
    "BASE",
    "BERT_BASE",
    "LARGE",
    "CausalLMOutput",
    "DecoderOutput",
    "FOLNet",
    "FOLNetConfig",
    "FOLNetDecoder",
    "FOLNetForCausalLM",
    "FOLNetForConditionalGeneration",
    "FOLNetForMaskedLM",
    "FOLNetForMultipleChoice",
    "FOLNetForPreTraining",
    "FOLNetForQuestionAnswering",
    "FOLNetForSequenceClassification",
    "FOLNetForTokenClassification",
    "FOLNetOutput",
    "Generated",
    "LoopedFOLNet",
    "RelationHead",
    "Sampling",
    "Seq2SeqLMOutput",
    "Transformer",
    "TransformerConfig",
    "check_inputs",
    "convert",
    "generate",
    "generate_from",
    "kinship",
    "matched_to",
    "objective",
    "operators",
    "positions",
    "table3",
    "tasks",
    "text_objective",
]
