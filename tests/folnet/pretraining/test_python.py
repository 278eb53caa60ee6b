"""The language reference as documents."""

import re
import sys
from collections import Counter
from pydoc_data import topics

import pytest

from folnet.pretraining.documents import is_held_out
from folnet.pretraining.python import language_reference, without_layout


@pytest.fixture(scope="module")
def documents():
    return language_reference()


def test_the_text_is_there(documents):
    """It has most topics and most of their words, and no other words."""
    assert len(documents) > 60
    assert len({document.name for document in documents}) == len(documents)
    whole = Counter(re.findall(r"\w+", " ".join(topics.topics.values())))
    kept = Counter(re.findall(r"\w+", " ".join(document.text for document in documents)))
    # A word broken at its hyphen, `built-` and `in`, is two words on both sides.
    assert not kept - whole
    assert sum(kept.values()) > 0.7 * sum(whole.values())


def test_no_layout_is_left(documents):
    """There are no underlines, borders, bullets or wrapped lines."""
    text = "\n".join(document.text for document in documents)
    lines = text.split("\n")
    assert not [line for line in lines if not re.search(r"\w", line)]
    assert not [line for line in lines if line.startswith(("* ", "+--", " ")) or line.endswith(" ")]
    assert "\n\n" not in text
    # A paragraph is one line: the reference is wrapped at 72, and has paragraphs of hundreds of characters.
    assert sum(len(line) > 200 for line in lines) > 300


TOPIC = """\
The "walk" statement
********************

A *walk* is **not** a run:  it takes *args and built-
in legs, and is wrapped
at some column.

   walk_stmt ::= "walk" expression
                 | "walk"

* the first item
  goes on

* the second

   if legs:
       walk()

   for leg in legs:
       if leg:
           walk()

1. one
2. of built-
   in legs

+---------+-----------+
| Animal  | Legs      |
|=========|===========|
| *Ant*   | six, all  |
|         | walking   |
+---------+-----------+
continued on | the next | page

   >>> walk(2)
   True
"""


def test_layout_is_distinguished_from_text():
    """Headings, emphasis, wrapped paragraphs, grammar, lists, code and tables."""
    assert without_layout(TOPIC) == [
        'The "walk" statement',
        "A walk is not a run: it takes *args and built-in legs, and is wrapped at some column.",
        'walk_stmt ::= "walk" expression',
        '| "walk"',
        "the first item goes on",
        "the second",
        "if legs: walk()",
        "for leg in legs:",
        "if leg:",
        "walk()",
        "one",
        "of built-in legs",
        "Animal Legs",
        "Ant six, all",
        "walking",
        "continued on the next page",
        ">>> walk(2)",
        "True",
    ]


def test_topics_do_not_repeat_each_other(documents):
    """No paragraph occurs in two documents, so none is both held out and learned."""
    seen = Counter(line for document in documents for line in document.text.split("\n") if len(line) >= 40)
    assert max(seen.values()) == 1
    repeated = Counter(
        " ".join(paragraph.split())
        for text in topics.topics.values()
        for paragraph in set(text.split("\n\n"))
        if len(paragraph) > 100
    )
    assert sum(count > 1 for count in repeated.values()) > 50  # as they do in the reference


def test_a_repeated_paragraph_stays_in_the_shorter_topic(monkeypatch):
    """Of equally long ones in the first by name; lines of less than forty characters may repeat."""
    long, short = "x" * 36 + " one", "y" * 35 + " one"
    made = {
        "c": f"{long}\n\n{short}\n\nless",
        "b": f"{long}\n\n{short}\n\nmore",
        "a": f"{short}\n\n{long}\n\nand more",
    }
    monkeypatch.setattr(topics, "topics", made | {"d": long})
    found = language_reference()
    assert list(found) == [
        ("topic a", f"{short}\nand more"),
        ("topic b", f"{short}\nmore"),
        ("topic c", f"{short}\nless"),
        ("topic d", long),
    ]
    monkeypatch.setattr(topics, "topics", made)
    assert [document.text.count(long) for document in language_reference()] == [0, 1, 0]


def test_a_part_can_be_held_out(documents):
    """With 15 % of the topics there is enough text to measure on."""
    total = sum(len(document.text) for document in documents)
    held = sum(len(document.text) for document in documents if is_held_out(document.text, 0.15))
    assert 0.02 < held / total < 0.4


def test_a_python_without_it(monkeypatch):
    """Some distributions lack it."""
    monkeypatch.setitem(sys.modules, "pydoc_data", None)
    with pytest.raises(ValueError, match="pydoc_data: missing in this Python"):
        language_reference()
