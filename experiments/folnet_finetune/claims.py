"""The claim about small models on FOLIO, without pretraining."""

import dataclasses
from pathlib import Path
from typing import Any

from experiments.folnet_finetune.config import Config
from experiments.folnet_pretrain.parts import ModelConfig
from experiments.runtime.claims import Claim, Comparison, Model, Run

MAJORITY = 72 / 204
"""The share of FOLIO's validation conclusions that are true, the most frequent answer in either split."""


def measure_conclusions(run: Run) -> dict[str, Any]:
    """Measures the accuracy on the validation split after the last step, not at the best one."""
    return {"accuracy": run.result.results["last"]["accuracy"]}


def _with_data(config: Config, folder: Path) -> Config:
    return dataclasses.replace(config, data_dir=str(folder))


_FOLNET = ModelConfig(
    vocab_size=2000,
    hidden_size=64,
    relation_size=8,
    num_hidden_layers=2,
    num_attention_heads=4,
    head_size=16,
    intermediate_size=128,
    relation_intermediate_size=16,
    max_distance=32,
    hidden_dropout_prob=0.1,
    attention_probs_dropout_prob=0.1,
)
_CONCLUSIONS = Config(
    task="folio",
    released_text=False,
    model=_FOLNET,
    new_vocabulary=2000,
    mask_padding=True,
    lengths=(96, 160, 224),
    length=384,
    steps=600,
    eval_every=300,
    checkpoint_every=100,
    lr=1e-3,
    predict=False,
)

CONCLUSIONS = Comparison(
    name="folio",
    claims=(
        Claim(
            id="folio",
            claim="without pretraining, FOLNet decides more of FOLIO's conclusions than one who always calls "
            "them true",
            measure="accuracy on the 204 validation conclusions",
            value="accuracy",
            tests=("mean",),
            target=MAJORITY,
            paper="with pretraining, .642 (Base) to .706 (Large)",
        ),
    ),
    models=(
        Model("FOLNet", _CONCLUSIONS, 235_075, _CONCLUSIONS.steps),
        Model(
            "BERT",
            dataclasses.replace(
                _CONCLUSIONS,
                model=_CONCLUSIONS.model.as_transformer(max_position_embeddings=384, intermediate_size=170),
            ),
            234_967,
            _CONCLUSIONS.steps,
            compared=False,
        ),
    ),
    measure=measure_conclusions,
    seeds=(0, 1, 2),
    with_data=_with_data,
)

CLAIMS = (CONCLUSIONS,)
