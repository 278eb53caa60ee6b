"""The model card: what hubs read of it, the commands in it, and the numbers of the run."""

import re
from typing import Any

import jax
import numpy as np
import yaml

from experiments.folnet_finetune import card, measures, model, train
from folnet import FOLNetForQuestionAnswering, FOLNetForSequenceClassification, tasks
from tests.experiments.folnet_finetune.test_own import small
from tests.folnet.small import draw


def opened(folder) -> tuple[Any, Any, Any]:
    """Returns the config of a run on files of one's own, its model and its data."""
    config = small(folder)
    data = train.open_data(config)
    return config.resolved(data.train.rows), model.make(config), data


def test_the_card_says_how_to_open_the_folder(tmp_path):
    """Its first block of Python opens what is saved next to it."""
    config, made, data = opened(tmp_path)
    params = draw(made)
    best = measures.Best(
        tmp_path / "best", made, data, lambda record: card.written(config, made, data, record)
    )
    best.offer(60, {"accuracy": 0.75, "main": 0.75}, params)
    best.offer(120, {"accuracy": 0.5, "main": 0.5}, params)
    text = (tmp_path / "best" / "README.md").read_text(encoding="utf-8")
    first, second = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    found: dict[str, Any] = {}
    exec(first.replace("FOLDER", str(tmp_path / "best")), found)
    assert type(found["model"]) is FOLNetForSequenceClassification
    jax.tree.map(np.testing.assert_array_equal, found["params"], params)
    assert found["tokenizer"].vocabulary == data.tokenizer.vocabulary
    assert 'pipeline("text-classification", model="FOLDER", trust_remote_code=True)' in second
    compile(second, "card", "exec")


def test_the_card_has_the_numbers_of_the_run(tmp_path):
    config, made, data = opened(tmp_path)
    text = card.written(config, made, data, {"step": 1200, "accuracy": 0.75, "f1": 2 / 3})
    _, settings, rest = text.split("---\n", 2)
    assert yaml.safe_load(settings) == {
        "library_name": "transformers",
        "pipeline_tag": "text-classification",
        "tags": ["folnet", "jax", "flax"],
    }
    for line in (
        "# FOLNet fine-tuned on data of my own",
        "Classes: `bad`, `good`.",
        "| train | 12 rows of `train.jsonl` |",
        "| validation | 6 rows of `dev.jsonl` |",
        f"| updates | {config.steps} |",
        "| peak rate | 0.01 |",
        "Measured on validation:",
        "| accuracy | 0.75 |",
        "| f1 | 0.6667 |",
    ):
        assert f"{line}\n" in rest, line
    assert "after update 1,200." in rest
    assert "from random parameters" in rest
    assert "| step |" not in rest


def test_other_tasks_have_their_name(tmp_path):
    config, _, data = opened(tmp_path)
    settings = model.make(config).config
    spans = FOLNetForQuestionAnswering(settings)
    text = card.written(config, spans, data._replace(task=tasks.SQUAD, dev=()), {"step": 3})
    assert "pipeline_tag: question-answering\n" in text
    assert "# FOLNet fine-tuned on squad2\n" in text
    assert "from folnet import FOLNetForQuestionAnswering\n" in text
    assert "Measured on nothing:" in text
    assert "Classes:" not in text
