"""The model that is fine-tuned: what of a checkpoint is taken, what does not fit, the heads' losses."""

import dataclasses
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors import numpy as safetensors_numpy

from experiments.folnet_finetune import config as presets
from experiments.folnet_finetune import model as finetune_model
from folnet import (
    FOLNet,
    FOLNetForPreTraining,
    FOLNetForQuestionAnswering,
    FOLNetForSequenceClassification,
    parameters,
    pretrained,
)
from folnet.heads import QuestionAnsweringOutput, SequenceClassifierOutput
from tests.experiments.folnet_finetune import small as small_finetune

pytestmark = pytest.mark.usefixtures("compiled_quickly")


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    return small_finetune.checkpoint(tmp_path_factory.mktemp("checkpoint"))


def small(checkpoint, **fields):
    return small_finetune.small(checkpoint, checkpoint, **fields)


@pytest.mark.parametrize(
    ("task", "cls", "labels", "kind"),
    [
        ("mnli", FOLNetForSequenceClassification, 3, "single_label_classification"),
        ("stsb", FOLNetForSequenceClassification, 1, "regression"),
        ("clutrr23", FOLNetForSequenceClassification, 21, "single_label_classification"),
        ("squad2", FOLNetForQuestionAnswering, 2, None),
    ],
)
def test_each_task_has_its_head(checkpoint, task, cls, labels, kind):
    """Of the checkpoint's sizes; dropout and types are the config's."""
    config = small(checkpoint, task=task, length=200)
    config.model = dataclasses.replace(config.model, hidden_dropout_prob=0.3, dtype="bfloat16")
    model = finetune_model.make(config)
    assert type(model) is cls
    assert (model.config.num_labels, model.config.problem_type) == (labels, kind)
    assert (model.config.hidden_size, model.config.operators) == (16, "j.at")
    assert (model.config.hidden_dropout_prob, model.config.dtype) == (0.3, "bfloat16")


@pytest.mark.slow
@pytest.mark.parametrize("task", ["rte", "squad2"])
def test_the_papers_model_can_be_traced(task):
    """FOLNet Base with a head: the notes' number of parameters and the head's; a loss comes out."""
    config = dataclasses.replace(presets.get_config(task), checkpoint="")
    model = finetune_model.make(config)
    params = jax.eval_shape(finetune_model.make_init(model), jax.random.key(0))
    head = 2 * (768 + 1)  # two classes, or where an answer begins and ends
    assert sum(leaf.size for leaf in jax.tree.leaves(params)) == 138_381_952 + head
    ids = jax.ShapeDtypeStruct((2, config.tokens), jnp.int32)
    batch = {"input_ids": ids, "token_type_ids": ids, "weight": jax.ShapeDtypeStruct((2,), jnp.float32)}
    batch |= dict.fromkeys(("label", "start", "end"), jax.ShapeDtypeStruct((2,), jnp.int32))
    sums = jax.eval_shape(finetune_model.make_loss(config, model), params, batch, jax.random.key(0))
    assert (sums.numerator.shape, sums.numerator.dtype) == ((), jnp.float32)


@pytest.mark.parametrize("saved", [FOLNet, pytest.param(FOLNetForPreTraining, marks=pytest.mark.slow)])
def test_it_begins_with_the_checkpoints_encoder(tmp_path, saved):
    """Also of an encoder saved alone. The head is new, and the seed's."""
    checkpoint = small_finetune.checkpoint(tmp_path, saved)
    config = small(checkpoint)
    model = finetune_model.make(config)
    assert finetune_model.misfits(config) == []
    params = parameters.flatten(finetune_model.begin(config, model))
    kept = safetensors_numpy.load_file(checkpoint / "model.safetensors")
    encoder = {name.removeprefix("folnet."): kept[name] for name in kept}
    names = [name for name in params if name.startswith("folnet.")]
    assert len(names) > 10
    for name in names:
        np.testing.assert_array_equal(params[name], encoder[name.removeprefix("folnet.")])
    heads = {name: value for name, value in params.items() if name not in names}
    assert set(heads) == {"classifier.weight", "classifier.bias"}
    other = finetune_model.begin(dataclasses.replace(config, seed=1), model)["classifier"]["weight"]
    assert (np.asarray(heads["classifier.weight"]) != np.asarray(other)).all()


@pytest.mark.slow
def test_a_head_that_is_there_is_not_gone_on_with(checkpoint, tmp_path):
    """A model fine-tuned on three classes starts one of two."""
    config = small(checkpoint, task="mnli")
    model = finetune_model.make(config)
    table = {name: np.ones(shape, np.float32) for name, shape in parameters.shapes(model).items()}
    model.save_pretrained(tmp_path, parameters.nest(table))
    config = small(tmp_path)
    assert finetune_model.misfits(config) == []
    params = finetune_model.begin(config, finetune_model.make(config))
    assert params["classifier"]["weight"].shape == (16, 2)
    assert float(np.abs(params["classifier"]["weight"]).max()) < 0.2


def test_what_does_not_fit_is_one_line(checkpoint, tmp_path):
    """Files that are missing or damaged, or of another model."""
    settings = (checkpoint / pretrained.CONFIG_FILE).read_text()
    target = tmp_path / pretrained.CONFIG_FILE

    def told(**fields):
        config = small(tmp_path)
        config.model = dataclasses.replace(config.model, **fields)
        (line,) = finetune_model.misfits(config)
        assert "\n" not in line
        return line

    assert "expected the settings of a FOLNet, but it is not there" in told()
    target.write_text(settings)
    assert "model.safetensors should have the parameters of a model, but there is none" in told()
    (tmp_path / pretrained.WEIGHTS_FILE).write_bytes(b"not one")
    assert "but it is damaged" in told()
    (tmp_path / pretrained.WEIGHTS_FILE).write_bytes((checkpoint / pretrained.WEIGHTS_FILE).read_bytes())
    target.write_text(settings.replace('"hidden_size": 16', '"hidden_size": 20'))
    line = told()
    assert "does not fit its config.json: folnet.embeddings" in line
    assert line.endswith(" more")
    target.write_text(settings.replace('"model_type": "folnet"', '"model_type": "bert"'))
    assert "model_type is 'bert'" in told()
    target.write_text(settings)
    assert "model.dtype is 'int8'" in told(dtype="int8")
    target.write_text(settings.replace('"absolute_position": false', '"absolute_position": true'))
    config = small(tmp_path, length=17)
    assert (
        "length=17 must be at most the checkpoint's 16 absolute positions"
        in finetune_model.misfits(config)[0]
    )


def given(output, drops=0.0):
    """A model that says what it is told to say."""
    settings = types.SimpleNamespace(hidden_dropout_prob=drops, attention_probs_dropout_prob=0.0)
    return types.SimpleNamespace(config=settings, apply=lambda *arguments, **more: output)


BATCH = {"input_ids": np.zeros((4, 3), np.int32), "token_type_ids": np.zeros((4, 3), np.int32)}
WEIGHT = np.asarray([1, 1, 1, 0], np.float32)


def log_softmax(logits):
    shifted = logits - logits.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


@pytest.fixture
def logits():
    return np.random.default_rng(0).normal(0, 2, (4, 3))


def test_the_loss_of_classes(logits):
    """The fourth row is filled in: it counts nowhere."""
    labels = np.asarray([2, 0, 1, -1], np.int32)
    loss = finetune_model.make_loss(
        small("x", task="mnli"), given(SequenceClassifierOutput(jnp.asarray(logits)))
    )
    sums = loss(None, BATCH | {"label": labels, "weight": WEIGHT}, jax.random.key(0))
    wanted = -sum(log_softmax(logits)[row, labels[row]] for row in range(3))
    right = int((logits.argmax(1) == labels)[:3].sum())
    assert float(sums.numerator) == pytest.approx(wanted, rel=1e-5)
    assert (int(sums.denominator), int(sums.metrics["accuracy"][0])) == (3, right)


def test_the_loss_of_numbers(logits):
    """Squared errors, whatever stands in the row that is filled in."""
    labels = np.asarray([5.0, 0.5, 2.0, 77.0], np.float32)
    out = SequenceClassifierOutput(jnp.asarray(logits[:, :1]))
    loss = finetune_model.make_loss(small("x", task="stsb"), given(out))
    sums = loss(None, BATCH | {"label": labels, "weight": WEIGHT}, jax.random.key(0))
    assert float(sums.numerator) == pytest.approx(((logits[:3, 0] - labels[:3]) ** 2).sum(), rel=1e-5)
    assert float(sums.denominator) == 3
    assert sums.metrics == {}


def test_the_loss_of_spans(logits):
    """Half of both cross-entropies; right is what has both ends right."""
    start, end = np.asarray([0, 2, 1, -1], np.int32), np.asarray([1, 2, 0, -1], np.int32)
    ends = logits[::-1].copy()
    out = QuestionAnsweringOutput(jnp.asarray(logits), jnp.asarray(ends))
    loss = finetune_model.make_loss(small("x", task="squad2", length=200), given(out))
    sums = loss(None, BATCH | {"start": start, "end": end, "weight": WEIGHT}, jax.random.key(0))
    wanted = -0.5 * sum(
        log_softmax(logits)[row, start[row]] + log_softmax(ends)[row, end[row]] for row in range(3)
    )
    right = ((logits.argmax(1) == start) & (ends.argmax(1) == end))[:3].sum()
    assert float(sums.numerator) == pytest.approx(wanted, rel=1e-5)
    assert (int(sums.denominator), int(sums.metrics["accuracy"][0])) == (3, int(right))


@pytest.mark.parametrize("drops", [0.0, 0.1])
def test_dropout_takes_part_in_training_alone(drops):
    """Training hands in a key if something is dropped, measuring never does."""
    seen = []

    def apply(variables, ids, segments, mask, deterministic, rngs=None):
        seen.append((deterministic, rngs is None))
        return SequenceClassifierOutput(jnp.zeros((4, 2)))

    model = given(None, drops)
    model.apply = apply
    loss = finetune_model.make_loss(small("x"), model)
    loss(None, BATCH | {"label": np.zeros(4, np.int32), "weight": WEIGHT}, jax.random.key(0))
    finetune_model.apply(model, None, BATCH)
    assert seen == [(not drops, not drops), (True, True)]
