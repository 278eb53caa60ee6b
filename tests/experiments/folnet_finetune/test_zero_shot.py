"""Zero-shot GLUE: words at the mask, tables and files, and errors for missing files."""

import json
import types
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from absl import app

from experiments.folnet_finetune import zero_shot
from folnet import FOLNet, FOLNetForMaskedLM, tasks
from folnet.heads import MaskedLMOutput
from folnet.tasks import prompts
from tests.experiments.folnet_finetune import small as small_finetune
from tests.folnet import small_tasks

pytestmark = pytest.mark.usefixtures("compiled_quickly")

SST2 = tasks.SEQUENCE_TASKS["sst2"]


@pytest.fixture(scope="module")
def glue(tmp_path_factory):
    return small_tasks.glue(tmp_path_factory.mktemp("glue"))


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    return small_finetune.checkpoint(tmp_path_factory.mktemp("checkpoint"))


def values(checkpoint, data_dir, out, **fields):
    """Returns values of all flags, with changes."""
    chosen: dict[str, Any] = {
        "checkpoint": str(checkpoint),
        "data_dir": str(data_dir),
        "out": str(out),
        "vocabulary": "",
    }
    chosen |= {"tasks": [], "length": 24, "batch_size": 2, "mask_padding": False, "lowercase": True}
    return chosen | {"dtype": "float32"} | fields


def reader(apply, **fields):
    model: Any = types.SimpleNamespace(apply=apply)
    return zero_shot.Reader(model, {}, small_tasks.tokenizer(), length=40, batch_size=3, **fields)


def test_the_model_reads_prompts_and_their_mask_if_asked_for(glue):
    """A model that says which of its inputs are padding: only with `mask_padding` does it know."""
    task, tokenizer = tasks.SEQUENCE_TASKS["rte"], small_tasks.tokenizer()
    yes, no = (tokenizer.ids([name])[0][0] for name in ("yes", "no"))

    def apply(variables, ids, segments, mask, mlm_positions):
        padding = (ids == tokenizer.pad_id).sum(1) if mask is None else (~mask).sum(1)
        assert mlm_positions.shape == (3, 1)
        values = jnp.zeros((3, tokenizer.vocab_size)).at[:, yes].set(padding).at[:, no].set(segments.sum(1))
        return MaskedLMOutput(jnp.where(mask is None, -1.0, 1.0) * values[:, None])

    examples = [*task.examples(glue, "train")] * 3  # of several batches
    assert len(examples) > 3
    ids = prompts.prompt_features(tasks.PROMPTS["rte"], examples, tokenizer, 40).input_ids
    padding = (ids == tokenizer.pad_id).sum(1)
    for masks, sign in ((False, -1), (True, 1)):
        found = reader(apply, mask_padding=masks).logits(tasks.PROMPTS["rte"], examples)
        np.testing.assert_array_equal(found, np.stack([sign * padding, 0 * padding], axis=1))


def test_the_likeliest_word_at_the_mask_decides(glue, tmp_path):
    """The model predicts "terrible" for texts with that word, else "great", and "no" without a mask."""
    tokenizer = small_tasks.tokenizer()
    terrible, great, no = (tokenizer.ids([name])[0][0] for name in ("terrible", "great", "no"))

    def apply(variables, ids, segments, mask, mlm_positions):
        assert mask is None
        assert ids.shape == (3, 40)
        masked = jnp.take_along_axis(ids, mlm_positions, axis=1)[:, 0] == tokenizer.mask_id
        word = jnp.where(masked, jnp.where((ids == terrible).any(1), terrible, great), no)
        return MaskedLMOutput(jax.nn.one_hot(word, tokenizer.vocab_size)[:, None])

    examples = SST2.examples(glue, "train")[:]
    wanted = [0 if "terrible" in example.first else 1 for example in examples]
    logits = reader(apply).logits(tasks.PROMPTS["sst2"], examples)
    assert logits.shape == (len(examples), 2)
    assert prompts.predict(SST2, logits).tolist() == wanted == [1, 0]
    (column,) = zero_shot.measure(reader(apply), glue, ["sst2"], tmp_path)
    assert (column.name, column.metric, column.score, column.constant) == ("SST-2", "accuracy", 1.0, 1.0)
    path = tmp_path / "predictions/SST-2_validation.tsv"
    assert path.read_text() == "index\tprediction\n0\t1\n"


@pytest.mark.slow
def test_a_real_models_words(checkpoint, glue, tmp_path):
    """Batches of two agree with single examples; all nine columns, the average and the files are there."""
    table = zero_shot.run(values(checkpoint, glue, tmp_path, length=32))
    found = json.loads((tmp_path / "zero_shot.json").read_text())
    columns = found["columns"]
    assert list(columns) == list(tasks.COLUMNS)
    scores = {name: column["score"] for name, column in columns.items()}
    assert found["average"] == pytest.approx(sum(scores.values()) / 9)
    assert {name: column["metric"] for name, column in columns.items()} == dict(tasks.ZERO_SHOT)
    assert columns["QQP"]["constant"] == 0.0  # F1 of the class that is not asked for
    assert (tmp_path / "zero_shot.md").read_text() == table
    assert len({line.count("|") for line in table.splitlines()}) == 1

    model, params = FOLNetForMaskedLM.from_pretrained(checkpoint)
    tokenizer, task = small_tasks.tokenizer(), tasks.SEQUENCE_TASKS["cola"]
    examples = task.examples(glue, "validation")
    ids, segments, _ = tokenizer(
        [f"{example.first} This is [MASK]." for example in examples], length=32, special_tokens=True
    )
    logits = jax.jit(model.apply)({"params": params}, ids, segments).logits
    place = (ids == tokenizer.mask_id).argmax(1)
    words = [tokenizer.ids([word])[0][0] for word in ("incorrect", "correct")]
    wanted = np.asarray(logits)[np.arange(3), place][:, words]
    predictions = task.read_predictions(tmp_path / "predictions/CoLA_validation.tsv", examples)
    np.testing.assert_array_equal(predictions, wanted.argmax(1))
    ours = zero_shot.Reader(model, params, tokenizer, 32, 2).logits(tasks.PROMPTS["cola"], examples)
    np.testing.assert_allclose(ours, wanted, rtol=1e-4, atol=1e-6)


def test_missing_files_are_reported_in_one_line(checkpoint, glue, tmp_path):
    """Also a checkpoint without a masked-language-modeling head."""
    with pytest.raises(ValueError, match=r"sst2's validation: .*checkpoint: got .*, expected a directory"):
        zero_shot.run(values(tmp_path / "none", tmp_path / "data", tmp_path, tasks=["sst2"]))
    with pytest.raises(ValueError, match=r"--tasks: got 'wnli', expected some of 'mnli'"):
        zero_shot.run(values(checkpoint, glue, tmp_path, tasks=["wnli"]))
    with pytest.raises(ValueError, match=r"--vocabulary: got .*vocab\.txt, expected a file"):
        zero_shot.run(values(glue, glue, tmp_path))
    (tmp_path / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nyes\n")
    with pytest.raises(ValueError, match="expected words of one piece each"):
        zero_shot.run(values(checkpoint, glue, tmp_path, vocabulary=tmp_path / "vocab.txt", tasks=["rte"]))
    words = "\n".join(f"{letter}{number}" for letter in "abcdefgh" for number in range(26))
    vocabulary = (checkpoint / "vocab.txt").read_text() + words + "\n"
    (tmp_path / "vocab.txt").write_text(vocabulary)
    with pytest.raises(ValueError, match=r"model\.vocab_size: got \d+, expected at least"):
        zero_shot.run(values(checkpoint, glue, tmp_path, vocabulary=tmp_path / "vocab.txt", tasks=["rte"]))
    headless = small_finetune.checkpoint(tmp_path / "encoder", FOLNet)
    with pytest.raises(ValueError, match=r"predictions\.transform\.weight: missing"):
        zero_shot.run(values(headless, glue, tmp_path / "out"))
    assert not (tmp_path / "out").exists()


def test_the_average_is_of_all_nine():
    """There is no average of fewer columns."""
    columns = [
        zero_shot.Column(name, metric, 0.1 * place, 0.0, {}, 5)
        for place, (name, metric) in enumerate(tasks.ZERO_SHOT.items())
    ]
    assert zero_shot.average(columns) == pytest.approx(0.4)
    assert zero_shot.average(columns[:-1]) is None
    lines = zero_shot.markdown("model", columns).splitlines()
    assert lines[0].endswith("| RTE | average |")
    assert lines[3].endswith("| 80.0 | 40.0 |")
    assert lines[4] == "| most frequent class |" + " 0.0 |" * 9 + "  |"


def test_mistakes_are_usage_errors(monkeypatch):
    """The message is reduced to one line."""
    monkeypatch.setattr(zero_shot, "run", lambda values: (_ for _ in ()).throw(ValueError("a\n  b")))
    monkeypatch.setattr(zero_shot.flags, "FLAGS", types.SimpleNamespace(flag_values_dict=dict))
    with pytest.raises(app.UsageError, match=r"^a b$"):
        zero_shot.main()


def test_a_missing_library_is_named(checkpoint, glue, monkeypatch):
    def require(tasks):
        raise ImportError("the metrics need a library")

    monkeypatch.setattr(zero_shot.task_metrics, "require", require)
    found = zero_shot.missing(checkpoint, checkpoint / "vocab.txt", glue, ["sst2"])
    assert "the metrics need a library" in found
