"""The claims about small models on CLUTRR's stories and on FOLIO, without pretraining."""

import dataclasses
import statistics
from pathlib import Path
from typing import Any

from experiments import runtime
from experiments.folnet_finetune.config import Config
from experiments.folnet_pretrain.parts import ModelConfig
from experiments.runtime.claims import Claim, Comparison, Model, Run

LONGER = range(5, 11)
"""Numbers of relations in the chains of stories that are longer than those of training."""
MAJORITY = 72 / 204
"""The share of FOLIO's validation conclusions that are true, the most frequent answer in either split."""


def measure_stories(run: Run) -> dict[str, Any]:
    """Measures the accuracy by length of the chain, and that of the last training batches.

    The latter chooses settings, so that nothing is chosen by the published tests.
    """
    test = run.result.results["test"]
    lengths = {name.removeprefix("accuracy/k="): share for name, share in test.items() if "/k=" in name}
    rows = runtime.metrics.read(run.workdir / "metrics.jsonl")
    trained = [row["accuracy"] for row in rows if row.get("accuracy") is not None]
    return {
        "mean": statistics.fmean(lengths[str(length)] for length in LONGER),
        "trained": trained[-1],
        **{f"k{length}": share for length, share in lengths.items()},
    }


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
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
)
_T5 = _FOLNET.as_transformer(absolute_position=False, relative_position="t5", intermediate_size=265)
_STORIES = Config(
    task="clutrr234",
    released_text=False,
    model=_FOLNET,
    new_vocabulary=2000,
    mask_padding=True,
    lengths=(48, 64, 96, 160),
    length=288,
    steps=3000,
    eval_every=3000,
    checkpoint_every=500,
    predict=False,
)
_RATES = ({"lr": 1e-3}, {"lr": 2e-3})

STORIES = Comparison(
    name="clutrr.text",
    claims=(
        Claim(
            id="clutrr.text",
            claim="trained on CLUTRR's stories of 2 to 4 relations without pretraining, FOLNet answers "
            "longer ones better than Transformers",
            measure="mean accuracy over k = 5 to 10",
            value="mean",
            tests=("unpaired",),
            paper="with pretraining, 8 to 41 points above BERT at lengths that training lacks",
        ),
    ),
    models=tuple(
        Model(name, dataclasses.replace(_STORIES, model=model), parameters, _STORIES.steps, search=_RATES)
        for name, model, parameters in (
            ("FOLNet", _FOLNET, 236_245),
            (
                "BERT",
                _FOLNET.as_transformer(max_position_embeddings=288, intermediate_size=194),
                236_185,
            ),
            ("T5's bias", _T5, 236_199),
        )
    ),
    measure=measure_stories,
    seeds=(0, 1, 2),
    search_seeds=(100,),
    search_by="trained",
    search_steps=1000,
    with_data=_with_data,
)

_CONCLUSIONS = dataclasses.replace(
    _STORIES,
    task="folio",
    lengths=(96, 160, 224),
    length=384,
    steps=600,
    eval_every=300,
    checkpoint_every=100,
    lr=1e-3,
    model=dataclasses.replace(_FOLNET, hidden_dropout_prob=0.1, attention_probs_dropout_prob=0.1),
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

CLAIMS = (STORIES, CONCLUSIONS)
