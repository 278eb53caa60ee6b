"""What all tasks share: features of fixed shape, predictions, scores, and files of predictions."""

import numpy as np
import pytest

from folnet import tasks
from folnet.tasks.interface import NO_LABEL, Example, Examples
from tests.folnet import small_tasks

RTE, STSB, COLA = (tasks.SEQUENCE_TASKS[name] for name in ("rte", "stsb", "cola"))
PAIRS = Examples(
    [
        Example("0", "The man sat.", "A man.", 0),
        Example("1", "It was [SEP] " + "good " * 30, "She sat on a red car.", 1),
        Example("2", "A dog.", "", None),
    ],
    ["a.tsv, line 3: cut"],
)


@pytest.fixture(scope="module")
def tokenizer():
    return small_tasks.tokenizer()


def test_features(tokenizer):
    """Every row is [CLS] first [SEP] second [SEP], truncated if too long, then padding."""
    length = 20
    features = RTE.features(PAIRS, tokenizer, length)
    assert {array.shape for array in features[:3]} == {(3, length)}
    assert (features.input_ids.dtype, features.label.dtype, features.attention_mask.dtype) == (
        np.int32,
        np.int32,
        bool,
    )
    np.testing.assert_array_equal(features.label, [0, 1, NO_LABEL])
    assert RTE.labelled(PAIRS[:2])
    assert not RTE.labelled(PAIRS)
    for row, example in enumerate(PAIRS):
        first, second = tokenizer.ids([example.first, example.second])
        ids = features.input_ids[row][features.attention_mask[row]].tolist()
        separators = [place for place, number in enumerate(ids) if number == tokenizer.sep_id]
        assert len(separators) == 2  # "[SEP]" in a text is text
        assert ids[0] == tokenizer.cls_id
        assert separators[-1] == len(ids) - 1
        kept_first, kept_second = ids[1 : separators[0]], ids[separators[0] + 1 : -1]
        assert kept_first == first[: len(kept_first)]
        assert kept_second == second[: len(kept_second)]
        assert len(ids) == min(length, len(first) + len(second) + 3)
        segments = features.token_type_ids[row]
        assert segments.sum() == len(kept_second) + 1
        assert segments[separators[0] + 1 : len(ids)].all()
        assert (features.input_ids[row][len(ids) :] == tokenizer.pad_id).all()


def test_features_of_single_texts_and_numbers(tokenizer, monkeypatch):
    """There is one segment; numbers are float32, NaN where not published; chunks do not matter."""
    singles = [Example(str(i), "The dog " * i, None, i % 2) for i in range(1, 8)]
    whole = COLA.features(singles, tokenizer, 16)
    assert not whole.token_type_ids.any()
    monkeypatch.setattr("folnet.tasks.interface._CHUNK", 3)
    for one, other in zip(whole, COLA.features(singles, tokenizer, 16), strict=True):
        np.testing.assert_array_equal(one, other)
    numbers = STSB.features([Example("0", "a", "b", 3.2), Example("1", "a", "b", None)], tokenizer)
    assert numbers.input_ids.shape == (2, 128)
    assert numbers.label.dtype == np.float32
    np.testing.assert_array_equal(numbers.label, np.asarray([3.2, np.nan], np.float32))
    assert COLA.features([], tokenizer, 8).input_ids.shape == (0, 8)
    with pytest.raises(ValueError, match="examples: got both single texts and pairs"):
        RTE.features([PAIRS[0], singles[0]], tokenizer)
    with pytest.raises(ValueError, match=r"length: .*, expected at least 3"):
        RTE.features(PAIRS, tokenizer, 2)


def test_examples_are_a_sequence():
    """The skipped rows stay with the whole."""
    assert len(PAIRS) == 3
    assert list(PAIRS)[1] is PAIRS[1]
    assert isinstance(PAIRS[:2], Examples)
    assert list(PAIRS[::-1]) == list(reversed(PAIRS))
    assert PAIRS.skipped == ("a.tsv, line 3: cut",)


def test_predictions_and_scores():
    """The class with the greatest logit, or the number itself; groups are scored separately too."""
    assert (RTE.predict(np.zeros((1, 2))).dtype, STSB.predict(np.zeros((1, 1))).dtype) == (
        np.int32,
        np.float32,
    )
    np.testing.assert_array_equal(RTE.predict(np.asarray([[0.1, 0.2], [3, -1]])), [1, 0])
    np.testing.assert_array_equal(
        STSB.predict(np.asarray([[-1.0], [2.5], [9]])), np.asarray([-1, 2.5, 9], np.float32)
    )
    with pytest.raises(ValueError, match=r"logits: got shape \(3, 1\), expected \[N, 2\] for rte"):
        RTE.predict(np.zeros((3, 1)))
    with pytest.raises(ValueError, match="logits: got nan, expected finite numbers for rte"):
        RTE.predict(np.asarray([[0, np.nan]]))
    examples = [
        Example(str(i), "a", "b", label, group)
        for i, (label, group) in enumerate(zip((0, 1, 1, 1), "aabb", strict=True))
    ]
    found = RTE.score(examples, np.asarray([0, 0, 1, 1]))
    assert found == pytest.approx({"accuracy": 0.75, "accuracy/a": 0.5, "accuracy/b": 1.0})
    assert set(tasks.SEQUENCE_TASKS["qqp"].score(examples[:2], np.asarray([0, 1]))) == {
        "accuracy",
        "f1",
        "accuracy/a",
    }
    with pytest.raises(ValueError, match="examples: got 1 without label"):
        RTE.score(PAIRS, np.zeros(3, np.int32))
    with pytest.raises(ValueError, match="got 2, expected one for each of 3"):
        RTE.score(PAIRS, np.zeros(2, np.int32))


def test_predictions_that_are_none(tmp_path):
    """Unknown classes, and files that do not match."""
    with pytest.raises(ValueError, match=r"got 2, expected 0 to 1 for rte"):
        RTE.write_predictions(tmp_path, "test", PAIRS, np.asarray([0, 1, 2]))
    with pytest.raises(ValueError, match="got 1, expected one for each of 3"):
        RTE.write_predictions(tmp_path, "test", PAIRS, np.asarray([0]))
    path = RTE.write_predictions(tmp_path, "test", PAIRS[:2], np.asarray([0, 1]))
    with pytest.raises(ValueError, match="1 predictions are missing, the first for index 2"):
        RTE.read_predictions(path, PAIRS)
    path.write_text("index\tprediction\n0\tentailment\n1\tyes\n")
    with pytest.raises(ValueError, match="got the prediction 'yes' for index 1, expected entailment or not_"):
        RTE.read_predictions(path, PAIRS[:2])
