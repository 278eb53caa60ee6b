"""What a run does for words, spans and choices: losses, logits of cut batches, predictions and errors."""

import dataclasses
import json
import types
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.folnet_finetune import card, data, kinds, measures, model, predict, train
from experiments.folnet_finetune.config import Config
from experiments.runtime.workdir import Workdir
from folnet import objective, tasks
from folnet.heads import MultipleChoiceOutput, TokenClassifierOutput
from folnet.tasks.interface import NO_LABEL
from tests.experiments.folnet_finetune.test_own import small
from tests.folnet import small_tasks
from tests.folnet.small import draw, quickly
from tests.folnet.tasks.own.files import lines

pytestmark = pytest.mark.usefixtures("compiled_quickly")

WORDS = [
    {"tokens": ["the", "dog", "saw", "Scott", "Lewis"], "tags": ["O", "O", "O", "B-P", "I-P"]},
    {"tokens": ["it", "is", "Jason"], "tags": ["O", "O", "B-P"]},
    {"tokens": ["a", "cat"] * 9, "tags": ["O"] * 18},
]
SPANS = [
    {"question": "who sat", "context": "the dog sat . it is a red dog .", "answers": "the dog"},
    {"question": "who run", "context": "the dog sat . it is a red dog .", "answers": ""},
]
CHOICES = [
    {"question": "who sat", "choices": ["a dog", "a cat", "a man"], "label": 2},
    {"question": "who run", "choices": ["a dog", "a cat"], "label": 0},
]
ROWS = {"words": WORDS, "spans": SPANS, "choices": CHOICES}


def opened(folder, kind: str, **fields: Any) -> tuple[Config, Any]:
    """Writes the rows of a kind as both splits; returns a config and the data with a known vocabulary."""
    config = small(folder, **{"length": 16, "batch_size": 2, "eval_batch_size": 2, **fields})
    for path in (config.own.train, config.own.validation):
        with open(path, "w", encoding="utf-8") as file:
            file.write(lines(ROWS[kind]))
    return config, data.open_data(config, small_tasks.tokenizer())


@pytest.mark.parametrize(
    ("kind", "cls", "head"),
    [
        ("words", kinds.Words, "FOLNetForTokenClassification"),
        ("spans", kinds.Spans, "FOLNetForQuestionAnswering"),
        ("choices", kinds.Choices, "FOLNetForMultipleChoice"),
    ],
)
def test_models_learn_what_the_data_has(tmp_path, kind, cls, head):
    """The model of the kind takes a batch, and its loss has a gradient everywhere in the head."""
    config, found = opened(tmp_path, kind)
    rows = small_tasks.tokenizer().padded_vocab_size
    config.model = dataclasses.replace(config.model, vocab_size=rows, operators="j.")
    made = model.make(config)
    assert type(kinds.of(found.task)) is cls
    assert type(made).__name__ == head
    assert made.config.labels == found.task.classes
    params = draw(made)
    initial = jax.eval_shape(model.make_init(made), jax.random.key(0))
    assert jax.tree.map(np.shape, initial) == jax.tree.map(np.shape, params)
    loss = train.make_loss(config, made, train.class_weights(config, found))
    batch = data.Batches(found.train.features, config)(0)

    def mean(head):
        sums = loss(params | head, batch, jax.random.key(1))
        return sums.numerator / sums.denominator

    head_params = {name: of for name, of in params.items() if name != "folnet"}
    value, gradient = jax.device_get(quickly(jax.value_and_grad(mean))(head_params))
    assert np.isfinite(value)
    assert all(np.isfinite(leaf).all() and (leaf != 0).any() for leaf in jax.tree.leaves(gradient))
    text = card.written(config.resolved(3), made, found, {"step": 1})
    assert (f"pipeline_tag: {cls.pipeline}\n" in text) == bool(cls.pipeline)
    assert ("from transformers import pipeline" in text) == (kind == "words")
    assert (f"import AutoModelFor{head.removeprefix('FOLNetFor')}, AutoTokenizer" in text) == (
        kind != "words"
    )


def test_a_vocabulary_is_learned_from_all_texts(tmp_path):
    said = {"words": {"dog", "the", "cat"}, "spans": {"who", "red"}, "choices": {"who", "dog"}}
    for kind, words in said.items():
        config, _ = opened(tmp_path, kind, new_vocabulary=200)
        config.own.kind = kind
        texts = list(kinds.of(data.task_of(config)).texts(data.task_of(config).examples("", "train")))
        assert words <= set(" ".join(texts).split()), kind
        assert data.open_tokenizer(config).vocab_size <= 200


@pytest.fixture
def logits():
    return np.random.default_rng(0).normal(0, 2, (2, 3, 4))


def log_softmax(logits):
    shifted = logits - logits.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


@pytest.mark.parametrize("weights", [None, [2.0, 1.0, 0.5, 3.0]])
def test_the_loss_of_words(logits, weights):
    tags = np.asarray([[2, NO_LABEL, 0], [NO_LABEL, 3, 3]], np.int32)
    words = kinds.Words(None)
    out = TokenClassifierOutput(jnp.asarray(logits))
    given = None if weights is None else np.asarray(weights, np.float32)
    sums = quickly(lambda: words.sums(out, {"tags": tags}, given))()
    there = tags >= 0
    each = -log_softmax(logits)[there, tags[there]]
    counts = np.ones(4) if weights is None else np.asarray(weights)[tags[there]]
    assert float(sums.numerator) == pytest.approx((counts * each).sum(), rel=1e-5)
    assert float(sums.denominator) == pytest.approx(counts.sum())
    right = (logits.argmax(-1) == tags)[there].sum()
    assert tuple(map(int, sums.metrics["accuracy"])) == (right, 4)


def test_the_loss_of_choices():
    """A choice that a question lacks has no probability."""
    logits = np.asarray([[1.0, 2.0, 50.0], [0.5, -1.0, 0.25]])
    exists = np.asarray([[True, True, False], [True, True, True]])
    batch = {"label": np.asarray([0, 2], np.int32), "exists": exists}
    out = MultipleChoiceOutput(jnp.asarray(logits))
    sums = quickly(lambda: kinds.Choices(None).sums(out, batch, None))()
    wanted = -log_softmax(logits[0, :2])[0] - log_softmax(logits[1])[2]
    assert float(sums.numerator) == pytest.approx(wanted, rel=1e-5)
    assert tuple(map(int, sums.metrics["accuracy"])) == (0, 2)


def test_classes_of_words_are_balanced_by_words(tmp_path):
    config, found = opened(tmp_path, "words")
    config.own.balanced = True
    counts = np.asarray([2, 1, 23])  # B-P, I-P, O
    weights = train.class_weights(config, found)
    np.testing.assert_allclose(np.asarray(weights), counts.sum() / (3 * counts))
    config, found = opened(tmp_path, "choices")
    config.own.balanced = True
    with pytest.raises(ValueError, match="balanced: got True, expected False without classes"):
        train.class_weights(config, found)


@pytest.mark.parametrize(("kind", "target"), [("words", "tags"), ("choices", "label")])
def test_rows_that_are_filled_in_do_not_count(tmp_path, kind, target):
    """They are copies without labels; a batch that is cut has fewer tokens, not fewer choices."""
    config, found = opened(tmp_path, kind)
    table = data.columns(found.train.features, True)
    batch = data.take(table, np.asarray([1]), 2, 8)
    assert batch["weight"].tolist() == [1, 0]
    assert (batch[target][1] == NO_LABEL).all()
    expected = table[target][1, :8] if kind == "words" else table[target][1]
    np.testing.assert_array_equal(batch[target][0], expected)
    for name in data.INPUTS:
        np.testing.assert_array_equal(batch[name], np.stack([table[name][1][..., :8]] * 2))
    if kind == "choices":
        np.testing.assert_array_equal(batch["exists"], [table["exists"][1]] * 2)
    batches = data.Batches(found.train.features, dataclasses.replace(config, lengths=(8,)))
    assert batches(0)["input_ids"].shape[-1] in (8, 16)


def test_logits_of_words_do_not_depend_on_lengths_of_batches(tmp_path):
    """The logit of a word is the id of its first piece, whatever the batch was cut to."""
    rows = {}
    for lengths in ((), (8,)):
        config, found = opened(tmp_path, "words", lengths=lengths)

        def apply(params, ids, *_, **__):
            return TokenClassifierOutput(jnp.stack([ids, 0 * ids, 100 - ids], axis=-1) * params["params"])

        settings = types.SimpleNamespace(config=types.SimpleNamespace(), apply=apply)
        measured = measures.Measure(config, settings, found)(jnp.ones(()), found.dev[0])
        rows[lengths] = measured
    tokenizer = small_tasks.tokenizer()
    first = [tokenizer.ids([word])[0][0] for row in WORDS for word in row["tokens"]]
    np.testing.assert_array_equal(rows[()].logits[0][:, 0], first)
    np.testing.assert_array_equal(rows[(8,)].logits[0], rows[()].logits[0])
    assert set(rows[()].metrics) == {"f1", "accuracy"}


def test_lines_and_errors_of_words(tmp_path):
    _, found = opened(tmp_path, "words")
    kind, split = kinds.of(found.task), found.dev[0]
    logits = np.full((26, 3), -9.0)
    logits[:, 2] = 0
    logits[3] = [0, -9, -9]
    logits[7] = [0.0, -9.0, np.log(3)]  # "Jason" is taken as no name, with probability 3/4
    measured = kinds.Measured({}, logits.argmax(1), (logits,))
    rows = [json.loads(line) for line in kind.lines(split, measured)]
    assert rows[0]["words"] == WORDS[0]["tokens"]
    assert rows[0]["prediction"] == ["O", "O", "O", "B-P", "O"]
    assert rows[0]["label"] == WORDS[0]["tags"]
    assert rows[1]["probability"][2] == pytest.approx(0.75, abs=1e-4)
    wrong = [(line["index"], line["place"], line["word"], line["prediction"], line["label"])
             for line in kind.wrong(split, measured)]  # fmt: skip
    assert wrong == [("0", 4, "Lewis", "O", "I-P"), ("1", 2, "Jason", "O", "B-P")]
    measures._write_errors(tmp_path / "p", found.task, split, measured)
    assert sorted(path.name for path in (tmp_path / "p").iterdir()) == [
        "own_validation_confusion.png", "own_validation_errors.jsonl",
    ]  # fmt: skip
    unknown = split._replace(examples=[e._replace(tags=None) for e in split.examples], labelled=False)
    assert all("label" not in json.loads(line) for line in kind.lines(unknown, measured))
    (name,) = kind.write(tmp_path, split, measured)
    assert name == "own_validation.jsonl"


def test_lines_and_errors_of_choices(tmp_path):
    _, found = opened(tmp_path, "choices")
    kind, split = kinds.of(found.task), found.dev[0]
    measured = kind.measured(split, (np.log([[0.1, 0.7, 0.2], [0.25, 0.75, 9.0]]),), None)
    assert measured.metrics == {"accuracy": 0}
    rows = [json.loads(line) for line in kind.lines(split, measured)]
    assert rows == [
        {"index": "0", "prediction": "a cat", "number": 1, "label": "a man", "probability": 0.7},
        {"index": "1", "prediction": "a cat", "number": 1, "label": "a dog", "probability": 0.75},
    ]
    assert list(kind.wrong(split, measured)) == [
        row | {"question": asked["question"]} for row, asked in zip(rows, CHOICES, strict=True)
    ]
    assert measures._write_errors(tmp_path / "p", found.task, split, measured) == {}
    assert [path.name for path in (tmp_path / "p").iterdir()] == ["own_validation_errors.jsonl"]


def test_lines_of_spans(tmp_path):
    """Without labels, the threshold is 0, and no answers are written."""
    _, found = opened(tmp_path, "spans", length=32)
    kind, split = kinds.of(found.task), found.dev[0]
    start, end = np.zeros((2, *split.features.input_ids.shape), np.float32)
    start[:, split.features.column[0]] = end[:, split.features.column[0] + 1] = 3  # "the dog"
    start[1, 0] = 9  # no answer
    measured = kind.measured(split, (start, end), None)
    assert (measured.metrics["exact"], measured.metrics["f1/best"]) == (1, 1)
    rows = [json.loads(line) for line in kind.lines(split, measured)]
    assert rows == [
        {"index": "0", "prediction": "the dog", "answers": ["the dog"], "null_odds": -6},
        {"index": "1", "prediction": "", "answers": [], "null_odds": 3},
    ]
    hidden = split._replace(labelled=False)
    measured = kind.measured(hidden, (start, end), None)
    assert measured.metrics == {}
    assert [json.loads(line)["prediction"] for line in kind.lines(hidden, measured)] == ["the dog", ""]
    assert "answers" not in json.loads(kind.lines(hidden, measured)[0])
    assert kind.write(tmp_path, split, measured) == ["own_validation.jsonl"]
    assert list(kind.wrong(split, measured)) == []


def test_new_questions_are_answered_at_the_threshold_of_the_run(tmp_path):
    """With or without labels."""
    config, found = opened(tmp_path, "spans", length=32)
    rows = small_tasks.tokenizer().padded_vocab_size
    config.model = dataclasses.replace(config.model, vocab_size=rows, operators="j.")
    made, run = model.make(config), tmp_path / "run"
    Workdir(run, config).close()
    best = measures.Best(run / measures.BEST, made, found)
    params = draw(made)
    for step, threshold in enumerate((99.0, -99.0)):
        best.offer(step, {measures.MAIN: step, kinds.THRESHOLD: threshold}, params)
        _, _, measured = predict.answers(run, config.own.validation)
        assert [answer.text != "" for answer in measured.predictions] == [threshold > 0] * 2
        assert {"f1", "exact"} <= set(measured.metrics)
        assert not [name for name in measured.metrics if "/best" in name]
    new = tmp_path / "new.jsonl"
    new.write_text(lines([{name: row[name] for name in ("question", "context")} for row in SPANS]))
    _, _, measured = predict.answers(run, str(new))
    assert (measured.metrics, [answer.text for answer in measured.predictions]) == ({}, ["", ""])


def test_texts_in_windows_have_one_answer(tmp_path):
    config = small(tmp_path, length=8)
    long = "the dog sat on it . the cat sat on it ."
    with open(config.own.validation, "w", encoding="utf-8") as file:
        file.write(lines([{"text": long, "label": "good"}, {"text": "a cat", "label": "bad"}]))
    tokenizer = small_tasks.tokenizer()
    cut = data.open_data(config, tokenizer)
    assert (cut.dev[0].rows, cut.dev[0].features.cut_off) == (2, 1)
    config.own.windows = True
    found = data.open_data(config, tokenizer)
    split = found.dev[0]
    assert split.rows > 2
    assert split.features.cut_off == 0
    logits = np.zeros((split.rows, 2), np.float32)
    logits[:-1, 1] = 1 + np.arange(split.rows - 1)
    logits[-1, 0] = 5
    measured = kinds.of(found.task).measured(split, (logits,), None)
    assert measured.metrics == {"accuracy": 1}
    np.testing.assert_allclose(measured.logits[0], [[0, float(logits[:-1, 1].mean())], [5, 0]], rtol=1e-6)
    assert len(kinds.of(found.task).lines(split, measured)) == 2


def test_the_classes_of_a_plain_head_have_one_name_each():
    assert {kind.of_own for kind in kinds.KINDS.values()} == {"class", "spans", "words", "choices"}
    assert len({kind.head for kind in kinds.KINDS.values()}) == 4
    assert kinds.of(tasks.SQUAD).main == ["f1/best"]
    assert kinds.of(tasks.SEQUENCE_TASKS["mrpc"]).main == tasks.SEQUENCE_TASKS["mrpc"].metrics
    assert objective.IGNORED[0] == NO_LABEL


@pytest.mark.slow  # a whole run for each kind; its parts are tested above
@pytest.mark.parametrize("kind", ["words", "spans", "choices"])
def test_a_run_learns_and_its_best_model_answers(tmp_path, kind):
    config, _ = opened(tmp_path, kind, new_vocabulary=200, batch_size=2, epochs=60, eval_every=30)
    found: Any = train.main(config, workdir=tmp_path / "run")
    metric = kinds.of(data.task_of(config)).main[0]
    assert found.results["best"][metric] == 1
    answered, split, measured = predict.answers(tmp_path / "run", config.own.validation)
    assert type(answered) is type(kinds.of(data.task_of(config)))
    assert measured.metrics[metric.removesuffix("/best")] == 1  # at the threshold of the run
    assert len(answered.lines(split, measured)) == len(ROWS[kind])
