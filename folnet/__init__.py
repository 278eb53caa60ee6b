"""FOLNet of Chen (2023): first-order logic as a network, two branches of learned Horn clauses.

`model` and `heads` are the encoder and what stands on it, `operators` the seven neural logic operators,
`objective` the losses, `convert` the authors' checkpoints; every model class saves and loads itself.
"""

from folnet import convert, objective, operators, positions
from folnet.configuration import BASE, LARGE, FOLNetConfig, table3
from folnet.heads import (
    FOLNetForMaskedLM,
    FOLNetForMultipleChoice,
    FOLNetForPreTraining,
    FOLNetForQuestionAnswering,
    FOLNetForSequenceClassification,
)
from folnet.model import FOLNet, FOLNetOutput, check_inputs

__all__ = [
    "BASE",
    "LARGE",
    "FOLNet",
    "FOLNetConfig",
    "FOLNetForMaskedLM",
    "FOLNetForMultipleChoice",
    "FOLNetForPreTraining",
    "FOLNetForQuestionAnswering",
    "FOLNetForSequenceClassification",
    "FOLNetOutput",
    "check_inputs",
    "convert",
    "objective",
    "operators",
    "positions",
    "table3",
]
