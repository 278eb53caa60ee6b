"""Prompts: filled in as by Gao et al., truncated without losing the mask, and classes from words."""

import dataclasses
import itertools

import numpy as np
import pytest

from folnet import tasks
from folnet.tasks.interface import Example
from folnet.tasks.prompts import PROMPTS, Prompt, class_logits, label_ids, predict, prompt_features
from tests.folnet import small_tasks

PAIR = Example("0", "The man sat.", "The dog [MASK] ran.", 0)

FILLED = {
    "mnli": "The man sat? [MASK], the dog [MASK] ran.",
    "qqp": "The man sat. [MASK], the dog [MASK] ran.",
    "qnli": "The man sat? [MASK], the dog [MASK] ran.",
    "sst2": "The man sat. It was [MASK].",
    "cola": "The man sat. This is [MASK].",
    "stsb": "The man sat. [MASK], the dog [MASK] ran.",
    "mrpc": "The man sat. [MASK], the dog [MASK] ran.",
    "rte": "The man sat? [MASK], the dog [MASK] ran.",
}


@pytest.fixture(scope="module", params=[True, False], ids=["uncased", "cased"])
def tokenizer(request):
    return small_tasks.tokenizer(request.param)


@pytest.mark.parametrize("name", PROMPTS)
def test_every_task_has_its_prompt(name):
    """As in Table 1 of Gao et al., with one word per class, two for a number."""
    assert PROMPTS[name].fill(PAIR) == FILLED[name]
    assert len(PROMPTS[name].words) == (len(tasks.SEQUENCE_TASKS[name].classes) or 2)
    assert PROMPTS.keys() == {task.name for task in tasks.GLUE}


def test_words_stand_for_their_classes():
    """By name, not by number."""
    meant = {
        name: dict(zip(tasks.SEQUENCE_TASKS[name].classes, PROMPTS[name].words, strict=False))
        for name in PROMPTS
    }
    assert meant["mnli"] == {"entailment": "Yes", "neutral": "Maybe", "contradiction": "No"}
    assert meant["rte"] == meant["qnli"] == {"entailment": "Yes", "not_entailment": "No"}
    assert meant["sst2"] == {"negative": "terrible", "positive": "great"}
    assert meant["cola"] == {"unacceptable": "incorrect", "acceptable": "correct"}
    assert meant["mrpc"] == {"not_equivalent": "No", "equivalent": "Yes"}
    assert meant["qqp"] == {"not_duplicate": "No", "duplicate": "Yes"}
    assert PROMPTS["stsb"].words == ("No", "Yes")


@pytest.mark.parametrize("name", ["mnli", "mrpc", "sst2"])
@pytest.mark.parametrize("length", [24, 17, 13])
def test_features(name, length):
    """The template is complete and its mask is at the stated position.

    A mask in an example is text. Texts are truncated at their ends, the longer first.
    """
    tokenizer, prompt = small_tasks.tokenizer(), PROMPTS[name]
    examples = [PAIR, Example("1", "a dog " * 30, "it sat", 1), Example("2", "a dog.", "it sat " * 30, 1)]
    features = prompt_features(prompt, examples, tokenizer, length)
    assert features.input_ids.shape == (3, length)
    assert not features.token_type_ids.any()
    for row, example in enumerate(examples):
        ids = features.input_ids[row]
        assert np.flatnonzero(ids == tokenizer.mask_id).tolist() == [features.mask_position[row]]
        used = ids[features.attention_mask[row]].tolist()
        parts = [tokenizer.ids([text], special_tokens=n is None)[0] for n, text in prompt.parts(example)]
        whole = [tokenizer.cls_id, *itertools.chain(*parts), tokenizer.sep_id]
        assert len(used) == min(length, len(whole))
        if len(whole) <= length:
            assert used == whole
        # What is left when the template is taken out are beginnings of the texts.
        fixed = sum(len(p) for (n, _), p in zip(prompt.parts(example), parts, strict=True) if n is None)
        texts = [p for (n, _), p in zip(prompt.parts(example), parts, strict=True) if n is not None]
        assert (
            used[1 : 1 + min(len(texts[0]), (length - fixed - 2) // 2)]
            == texts[0][: (length - fixed - 2) // 2]
        )
        assert used[-1] == tokenizer.sep_id


def test_the_prompt_is_one_text(tokenizer):
    """Tokenized in parts or as a whole, the pieces are the same."""
    example = PAIR._replace(second="The dog ran.")
    for prompt in PROMPTS.values():
        features = prompt_features(prompt, [example], tokenizer, 64)
        whole = tokenizer([prompt.fill(example)], length=64, special_tokens=True)
        np.testing.assert_array_equal(features.input_ids, whole.input_ids)


def test_words_are_single_pieces(tokenizer):
    """Other words are named; capitals only matter to a cased vocabulary."""
    ids = label_ids(PROMPTS["sst2"], tokenizer)
    assert [tokenizer.vocabulary[number] for number in ids] == ["terrible", "great"]
    if tokenizer.lowercase:
        found = label_ids(PROMPTS["mnli"], tokenizer)
        assert [tokenizer.vocabulary[number] for number in found] == ["yes", "maybe", "no"]
        with pytest.raises(ValueError, match="expected different pieces"):
            label_ids(Prompt("{first} [MASK]", ("yes", "YES")), tokenizer)
    else:
        with pytest.raises(ValueError, match="words: got Yes, Maybe, No, expected words of one piece"):
            label_ids(PROMPTS["mnli"], tokenizer)
    with pytest.raises(ValueError, match="words: got catdog, 日"):
        label_ids(Prompt("{first} [MASK]", ("catdog", "cat", "日")), tokenizer)


def test_from_logits_at_the_mask_to_predictions():
    """The class of the greatest word; for a number, the mean weighted by both words' probabilities."""
    rng = np.random.default_rng(0)
    logits, ids = rng.normal(size=(5, 40)).astype(np.float32), np.asarray([7, 3, 20], np.int32)
    found = class_logits(logits, ids)
    np.testing.assert_array_equal(found, np.stack([logits[:, 7], logits[:, 3], logits[:, 20]], 1))
    np.testing.assert_array_equal(predict(tasks.SEQUENCE_TASKS["mnli"], found), found.argmax(1))
    assert class_logits(logits.astype(np.float16), ids).dtype == np.float32
    pair = np.asarray([[0, 0], [0, np.log(4)], [1000, 0], [-1000, 1000]], np.float32)
    numbers = predict(tasks.SEQUENCE_TASKS["stsb"], pair)
    np.testing.assert_allclose(numbers, [2.5, 4.0, 0.0, 5.0], rtol=1e-6)
    softmax = np.exp(found[:, :2].astype(float)) / np.exp(found[:, :2].astype(float)).sum(1, keepdims=True)
    np.testing.assert_allclose(
        predict(tasks.SEQUENCE_TASKS["stsb"], found[:, :2]), 5 * softmax[:, 1], rtol=1e-5
    )
    with pytest.raises(ValueError, match=r"expected \[N, 3\] for mnli"):
        predict(tasks.SEQUENCE_TASKS["mnli"], pair)
    np.testing.assert_array_equal(class_logits(logits, ids[:1] - 7), logits[:, :1])
    for wrong in ([40], [3, 40], [-1, 3], [[3]]):
        with pytest.raises(ValueError, match=r"mask_logits: got shape \(5, 40\), expected \[N, V\]"):
            class_logits(logits, np.asarray(wrong, np.int32))
    assert numbers.dtype == np.float32
    task = dataclasses.replace(tasks.SEQUENCE_TASKS["stsb"], bounds=(1.0, 5.0))
    np.testing.assert_allclose(predict(task, pair), [3.0, 4.2, 1.0, 5.0], rtol=1e-6)


@pytest.mark.parametrize(
    ("template", "words", "error"),
    [
        ("{first} It was.", ("a", "b"), "template: got"),
        ("{first} [MASK] [MASK]", ("a", "b"), "template: got"),
        ("It was [MASK]", ("a", "b"), "template: got"),
        ("{first} {third} [MASK]", ("a", "b"), "template: got"),
        ("{first} [MASK]", ("a", "a"), "words: got .* expected at least two, all different"),
        ("{first} [MASK]", ("a",), "words: got .* expected at least two, all different"),
    ],
)
def test_prompts_that_are_none(template, words, error):
    """Invalid prompts are refused when created."""
    with pytest.raises(ValueError, match=error):
        Prompt(template, words)


def test_examples_that_do_not_fit():
    """A missing second text, and a length too small for the template."""
    tokenizer = small_tasks.tokenizer()
    with pytest.raises(ValueError, match="example 3: got no second text"):
        prompt_features(PROMPTS["rte"], [Example("3", "A dog.")], tokenizer)
    with pytest.raises(ValueError, match=r"length: .*, expected at least 6 for the template"):
        prompt_features(PROMPTS["sst2"], [PAIR], tokenizer, 5)
    least = prompt_features(PROMPTS["sst2"], [PAIR], tokenizer, 6).input_ids
    np.testing.assert_array_equal(least, tokenizer(["It was [MASK]."], length=6, special_tokens=True)[0])


def test_an_empty_text_leaves_its_room_to_the_other():
    example = Example("0", "", "it sat " * 30)
    assert prompt_features(PROMPTS["mrpc"], [example], small_tasks.tokenizer(), 20).attention_mask.all()
