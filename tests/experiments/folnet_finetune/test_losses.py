"""The losses of fine-tuning against log-probabilities in NumPy, and what the model gets."""

import types
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.folnet_finetune import model, train
from folnet import tasks
from folnet.heads import QuestionAnsweringOutput, SequenceClassifierOutput
from tests.experiments.folnet_finetune.small import small
from tests.folnet.small import quickly

pytestmark = pytest.mark.usefixtures("compiled_quickly")


def given(output, drops=0.0):
    """Returns a model with fixed outputs."""
    settings = types.SimpleNamespace(hidden_dropout_prob=drops, attention_probs_dropout_prob=0.0)
    return types.SimpleNamespace(config=settings, apply=lambda *arguments, **more: output)


def compiled(loss, batch):
    return quickly(lambda: loss(None, batch, jax.random.key(0)))()


BATCH = {"input_ids": np.zeros((4, 3), np.int32), "token_type_ids": np.zeros((4, 3), np.int32)}


WEIGHT = np.asarray([1, 1, 1, 0], np.float32)


def log_softmax(logits):
    shifted = logits - logits.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


@pytest.fixture
def logits():
    return np.random.default_rng(0).normal(0, 2, (4, 3))


def test_the_loss_of_classes(logits):
    """The fourth row is padding and does not count."""
    labels = np.asarray([2, 0, 1, -1], np.int32)
    loss = train.make_loss(
        small(Path("x"), Path("x"), task="mnli"), given(SequenceClassifierOutput(jnp.asarray(logits)))
    )
    sums = compiled(loss, BATCH | {"label": labels, "weight": WEIGHT})
    wanted = -sum(log_softmax(logits)[row, labels[row]] for row in range(3))
    right = int((logits.argmax(1) == labels)[:3].sum())
    assert float(sums.numerator) == pytest.approx(wanted, rel=1e-5)
    assert (int(sums.denominator), int(sums.metrics["accuracy"][0])) == (3, right)


def test_classes_that_are_balanced_count_alike(logits):
    """Each class has a third of the weight of all examples; the mean is weighted, the accuracy is not."""
    labels = np.asarray([2, 0, 2, -1], np.int32)
    examples = [tasks.Example(str(n), "", label=label) for n, label in enumerate((2, 2, 0, 2, 1, 2))]
    config = small(Path("x"), Path("x"), task="mnli")
    config.own.balanced = True
    task = tasks.SEQUENCE_TASKS["mnli"]
    opened: Any = types.SimpleNamespace(task=task, train=types.SimpleNamespace(examples=examples))
    weights = train.class_weights(config, opened)
    assert weights is not None
    np.testing.assert_allclose(weights, [2, 2, 0.5])
    loss = train.make_loss(config, given(SequenceClassifierOutput(jnp.asarray(logits))), weights)
    sums = compiled(loss, BATCH | {"label": labels, "weight": WEIGHT})
    nats = [-log_softmax(logits)[row, labels[row]] for row in range(3)]
    assert float(sums.numerator) == pytest.approx(0.5 * nats[0] + 2 * nats[1] + 0.5 * nats[2], rel=1e-5)
    assert float(sums.denominator) == 3
    assert int(sums.metrics["accuracy"][1]) == 3
    opened.task = tasks.SEQUENCE_TASKS["stsb"]
    with pytest.raises(ValueError, match="balanced: got True, expected False without classes"):
        train.class_weights(config, opened)
    config.own.balanced = False
    assert train.class_weights(config, opened) is None


def test_the_loss_of_numbers(logits):
    """Squared errors do not depend on the padding row."""
    labels = np.asarray([5.0, 0.5, 2.0, 77.0], np.float32)
    out = SequenceClassifierOutput(jnp.asarray(logits[:, :1]))
    loss = train.make_loss(small(Path("x"), Path("x"), task="stsb"), given(out))
    sums = compiled(loss, BATCH | {"label": labels, "weight": WEIGHT})
    assert float(sums.numerator) == pytest.approx(((logits[:3, 0] - labels[:3]) ** 2).sum(), rel=1e-5)
    assert float(sums.denominator) == 3
    assert sums.metrics == {}


def test_the_loss_of_spans(logits):
    """The mean of both cross-entropies; an answer is correct if both ends are."""
    start, end = np.asarray([0, 2, 1, -1], np.int32), np.asarray([1, 2, 0, -1], np.int32)
    ends = logits[::-1].copy()
    out = QuestionAnsweringOutput(jnp.asarray(logits), jnp.asarray(ends))
    loss = train.make_loss(small(Path("x"), Path("x"), task="squad2", length=200), given(out))
    sums = compiled(loss, BATCH | {"start": start, "end": end, "weight": WEIGHT})
    wanted = -0.5 * sum(
        log_softmax(logits)[row, start[row]] + log_softmax(ends)[row, end[row]] for row in range(3)
    )
    right = ((logits.argmax(1) == start) & (ends.argmax(1) == end))[:3].sum()
    assert float(sums.numerator) == pytest.approx(wanted, rel=1e-5)
    assert (int(sums.denominator), int(sums.metrics["accuracy"][0])) == (3, int(right))


@pytest.mark.parametrize("hidden", [0.0, 0.1])
@pytest.mark.parametrize("attention", [0.0, 0.1])
def test_the_model_gets_the_batch_and_dropout_in_training_alone(hidden, attention):
    """Training passes its key if there is dropout of either kind; evaluation never does.

    The mask of padding is passed on wherever the batch has one.
    """
    seen = []

    def apply(variables, ids, segments, mask, deterministic, rngs=None):
        seen.append((variables, ids, segments, mask, deterministic, rngs))
        return SequenceClassifierOutput(jnp.zeros((4, 2)))

    dropping = given(None, hidden)
    dropping.config.attention_probs_dropout_prob = attention
    dropping.apply = apply
    loss = train.make_loss(small(Path("x"), Path("x")), dropping)
    key, names = jax.random.key(7), ("input_ids", "token_type_ids", "attention_mask")
    batch = {name: np.full((4, 3), number) for number, name in enumerate(names)}
    loss("p", batch | {"label": np.zeros(4, np.int32), "weight": WEIGHT}, key)
    model.apply(dropping, "q", BATCH)
    drops = bool(hidden or attention)
    expected = {"params": "p"}, *batch.values(), not drops, {"dropout": key} if drops else None
    assert all(found is wanted or found == wanted for found, wanted in zip(seen[0], expected, strict=True))
    assert seen[1][0] == {"params": "q"}
    assert seen[1][1] is BATCH["input_ids"]
    assert seen[1][3:] == (None, True, None)
