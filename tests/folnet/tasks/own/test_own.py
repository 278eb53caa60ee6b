"""Which kind of data a table has, by its columns and its first row."""

from typing import Any

import pytest

from folnet.tasks import own
from folnet.tasks.own.interface import ordered
from tests.folnet.tasks.own.files import lines, opened

TEXT = "the dog sat"
ASKED = {"question": TEXT, "context": TEXT}
CHOSEN = {"question": TEXT, "choices": ["a", "b"], "answer": 0}
KINDS: list[
    tuple[dict[str, Any], dict[str, Any], dict[str, str], type[Any]]
] = [  # a row, changes of the next
    ({"text": TEXT, "label": 1}, {"label": 2}, {}, own.TextTask),
    ({"text": TEXT, "options": "none", "label": 1}, {"label": 2}, {}, own.TextTask),
    ({"question": TEXT, "answer": TEXT, "label": 1}, {"label": 2}, {}, own.TextTask),
    ({"tokens": "a", "label": "O"}, {"label": "B"}, {"first": "tokens"}, own.TextTask),
    ({"tokens": "a b", "tags": "O B"}, {}, {"kind": "words"}, own.WordTask),
    ({"tokens": ["a"], "tags": ["O"]}, {"tags": ["B"]}, {}, own.WordTask),
    ({"said": ["a"], "tags": ["O"]}, {"tags": ["B"]}, {"first": "said"}, own.WordTask),
    (CHOSEN, {}, {}, own.ChoiceTask),
    (CHOSEN | {"choices": '["a", "b"]'}, {}, {}, own.ChoiceTask),
    ({"question": TEXT, "of": ["a", "b"], "answer": 0}, {}, {"second": "of"}, own.ChoiceTask),
    (ASKED | {"answers": "dog"}, {}, {}, own.SpanTask),
    (ASKED | {"answers": None}, {"answers": "dog"}, {}, own.SpanTask),
    ({"asked": TEXT, "context": TEXT, "answers": "dog"}, {}, {"first": "asked"}, own.SpanTask),
    (ASKED | {"answer": "dog", "label": 1}, {}, {"label": "answer"}, own.SpanTask),
    (
        ASKED | {"answer": "dog", "label": 1},
        {"label": 2},
        {"first": "question", "second": "context"},
        own.TextTask,
    ),
    (
        ASKED | {"answer": True},
        {"answer": False},
        {"first": "question", "second": "context", "label": "answer"},
        own.TextTask,
    ),
]


@pytest.mark.parametrize(("row", "changes", "options", "cls"), KINDS)
def test_a_kind_is_found(tmp_path, row, changes, options, cls):
    task = opened(tmp_path, lines([row, row | changes]), **options)
    assert type(task) is cls
    assert len(task.examples(".", "train")) == 2


def test_the_order_of_classes():
    """Names that are the same number are ordered, too, whatever the order of the set."""
    ones = ["0" * count + "1" for count in range(9)]
    assert ordered({"-1", "10", *ones}) == ("-1", *ones[::-1], "10")
    assert ordered({"10", "2", "a"}) == ("10", "2", "a")


def test_an_unknown_kind(tmp_path):
    with pytest.raises(ValueError, match=r"kind: got 'tree', expected one of '', 'class', 'number', 'words'"):
        opened(tmp_path, lines([KINDS[0][0]]), kind="tree")


def test_a_model_that_was_trained_keeps_its_classes(tmp_path):
    """A file with other labels, or in another order, does not change what their numbers mean."""
    (tmp_path / "new.jsonl").write_text(lines([{"tokens": ["a", "b"]}]))
    words = own.reopened(tmp_path / "new.jsonl", "words", ("O", "B-X"))
    assert (words.classes, words.metrics, words.columns.first) == (("O", "B-X"), ("f1", "accuracy"), "tokens")
    assert not words.labelled(words.examples(".", "test"))
    (tmp_path / "new.jsonl").write_text(lines([{"text": "a", "label": "z"}]))
    texts = own.reopened(tmp_path / "new.jsonl", "class", ("z", "y"))
    assert texts.examples(".", "test")[0].label == 0
    with pytest.raises(ValueError, match="got the label 'z', expected 'x' or 'y', the labels of"):
        own.reopened(tmp_path / "new.jsonl", "class", ("x", "y")).examples(".", "test")
    for count, end in ((8, "'7', the labels"), (9, "'7' or 1 more, the labels")):  # eight are named
        classes = tuple(map(str, range(count)))
        with pytest.raises(ValueError, match=end):
            own.reopened(tmp_path / "new.jsonl", "class", classes).examples(".", "test")
