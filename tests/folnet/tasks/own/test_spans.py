"""Answers that are parts of a context: every form of them, windows of any size, a line for every mistake."""

import dataclasses
import json

import numpy as np
import pytest

from folnet.tasks import own, tables
from folnet.tasks.squad_questions import Gold
from tests.folnet import small_tasks
from tests.folnet.tasks.own.files import lines, opened

CONTEXT = " the dog saw the cat . the cat ran . "


def row(answers, **more):
    return {"question": "who saw it", "context": CONTEXT, "answers": answers, **more}


FORMS = [
    ("the cat", (Gold("the cat", 13),)),
    (["the cat", "dog"], (Gold("the cat", 13), Gold("dog", 5))),
    ({"text": ["the cat"], "answer_start": [23]}, (Gold("the cat", 23),)),
    ({"text": ["dog"]}, (Gold("dog", 5),)),
    ([{"text": "the cat", "answer_start": 23}, {"text": "dog"}], (Gold("the cat", 23), Gold("dog", 5))),
    ({"text": [], "answer_start": []}, ()),
    ([], ()),
    ("", ()),
    (None, ()),
]


@pytest.mark.parametrize(("answers", "golds"), FORMS)
def test_answers_in_every_form(tmp_path, answers, golds):
    task = opened(tmp_path, lines([row("dog"), row(answers, id=7)]))
    assert (task.columns, task.metrics) == (("question", "context", "answers"), ("f1", "exact"))
    first, second = task.examples(".", "train")
    assert (first.index, second.index, second.golds) == ("0", "7", golds)
    assert all(CONTEXT[start : start + len(text)] == text for text, start in second.golds)
    assert second.context == CONTEXT  # as it is, since answers are places in it


def test_a_training_split_has_a_column_of_answers(tmp_path):
    with pytest.raises(ValueError, match=r"label: got none of 'answers'"):
        opened(tmp_path, lines([{"question": "who", "context": "a"}]), kind="spans")


def test_a_text_with_its_place_in_a_table(tmp_path):
    text = "question,passage,answer,answer_start\nwho,the cat the cat,the cat,8\nwho,a dog,,\n"
    task = opened(tmp_path, text, name="a.csv")
    assert task.columns == ("question", "passage", "answer")
    assert [question.golds for question in task.examples(".", "train")] == [(Gold("the cat", 8),), ()]


@pytest.mark.parametrize("length", [16, 24, 48])
def test_windows_fit_the_length(tmp_path, length):
    """Whatever the strides are asked to be, each token is in a window, and the answer in one of them."""
    task = opened(tmp_path, lines([row({"text": ["the cat"], "answer_start": [23]})]))
    task = dataclasses.replace(task, stride=128, query_length=64)
    examples, tokenizer = task.examples(".", "train"), small_tasks.tokenizer()
    found = task.features(examples, tokenizer, length)
    assert found.input_ids.shape[1] == length
    (pieces,) = tokenizer.pieces([CONTEXT])
    seen = {first + n for first, count in zip(found.first, found.count, strict=True) for n in range(count)}
    assert seen == set(range(len(pieces.ids)))
    inside = np.flatnonzero(found.start_positions)
    assert len(inside) > 0
    # The model that is sure of the place of the answer gives it.
    starts, ends = np.zeros((2, *found.input_ids.shape))
    starts[inside, found.start_positions[inside]] = ends[inside, found.end_positions[inside]] = 9
    (answer,) = task.answers(examples, found, starts, ends)
    assert answer.text == "the cat"
    assert task.score(examples, [answer])["exact"] == 1


def test_new_questions_may_lack_answers(tmp_path):
    task = opened(tmp_path, lines([row("dog")]))
    (tmp_path / "new.jsonl").write_text(json.dumps({"question": "who", "context": "a dog"}) + "\n")
    again = own.reopened(tables.source(str(tmp_path / "new.jsonl")), "spans", ())
    assert type(again) is type(task)
    questions = again.examples(".", "test")
    assert not again.labelled(questions)
    (tmp_path / "new.jsonl").write_text(lines([row("")]))
    assert task.labelled(own.reopened(tmp_path / "new.jsonl", "spans", ()).examples(".", "test"))
    for place in (0, 1):
        rows = [row("dog"), row("dog")]
        del rows[place]["answers"]
        (tmp_path / "new.jsonl").write_text(lines(rows))
        assert not task.labelled(own.reopened(tmp_path / "new.jsonl", "spans", ()).examples(".", "test"))


def test_ids_differ(tmp_path):
    """Answers and scores are by id; an empty one is none."""
    task = opened(tmp_path, lines([row("dog", id=""), row("dog", id=None), row("dog", id="")]))
    assert [question.index for question in task.examples(".", "train")] == ["0", "1", "2"]
    task = opened(tmp_path, lines([row("dog", id="7"), row("dog"), row("dog", id=7)]))
    with pytest.raises(ValueError, match=r"train\.jsonl, line 3: id: got '7' again, expected another for"):
        task.examples(".", "train")


BAD = [
    (lines([row("dog"), row("bird")]), r"line 2: answers: got 'bird', expected a part of the context"),
    (lines([row("dog"), row(7)]), r"line 2: answers: got 7, expected a text or a list of texts"),
    (lines([row("dog"), row([7])]), r"line 2: answers: got 7, expected a text of the context"),
    (lines([row("dog"), row([" "])]), r"line 2: answers: got ' ', expected a text of the context"),
    (lines([row("dog"), row("dog", answer_start=6)]), r"line 2: answers: got 'dog', .* in the context at 6"),
    (
        lines([row("dog"), row("dog", answer_start="x")]),
        r"line 2: answers: got 'dog', .* in the context at 'x'",
    ),
    (
        lines([row("dog"), row({"text": ["dog"], "answer_start": []})]),
        r"line 2: answers: got 1 texts and answer_start",
    ),
    (
        lines([row("dog"), {"question": "who", "context": "a"}]),
        r"line 2: missing 'answers', expected the",
    ),
    (lines([row("dog"), row("dog", context=" ")]), r"line 2: context: the text is empty"),
    (lines([row("dog"), row("dog", question=3)]), r"line 2: question: got 3, expected a text"),
    (
        lines([row(""), row([])]),
        r"train\.jsonl: got no answer in all 2 rows, expected some in the column",
    ),
]


@pytest.mark.parametrize(("train", "message"), BAD)
def test_every_mistake_is_one_line(tmp_path, train, message):
    with pytest.raises(ValueError, match=message) as error:
        opened(tmp_path, train)
    assert "\n" not in str(error.value)
