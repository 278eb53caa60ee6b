"""Classifiers that do not reason: what they see of a question, and that they find what leaks."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
import pytest

from experiments.reasoning import shallow
from experiments.reasoning.tasks import TASKS, Problems, Task
from experiments.reasoning.tasks.compositions import Composition
from experiments.reasoning.tasks.match3 import Match3
from experiments.reasoning.tasks.words import ModularArithmetic

pytestmark = pytest.mark.usefixtures("compiled_quickly")

ROOT = Path(__file__).parents[3]


def seen(task: Task, tokens: Any, targets: Any, relations: Any = None, width: int = 4) -> shallow.Questions:
    parts: Any = [None if part is None else np.asarray(part)[None] for part in (tokens, targets, relations)]
    return shallow.questions(task, Problems(*parts), width)


def agree(first: shallow.Questions, second: shallow.Questions) -> float:
    """In how many places the first questions of each agree."""
    return float(first.places[0] @ second.places[0])


def test_sets_agree_in_their_common_elements():
    """An element that occurs twice in both counts twice, and the one that is asked about as much as a set."""
    one = seen(Match3(), [5, 5, 7, 1], [0, -1, -1, -1])
    assert agree(one, seen(Match3(), [2, 5, 3, 5], [0, -1, -1, -1])) == 2
    assert agree(one, seen(Match3(), [5, 1, 0, 0], [1, -1, -1, -1])) == 2 + 4
    assert one.counts[0, :17].tolist() == np.bincount([5, 5, 7, 1], minlength=17).tolist()
    assert one.counts[0, 17:].argmax() == 5


def test_sequences_agree_in_places_before_the_question():
    """What follows it is not seen; a longer sequence is cut at its beginning."""
    task = ModularArithmetic()
    one = seen(task, [1, 2, 3, 4, 0, 6], [-1, -1, -1, 1, -1, -1])
    assert agree(one, seen(task, [9 - 3, 2, 3, 4], [-1, -1, -1, 0])) == 3
    assert agree(one, seen(task, [0, 0, 1, 2, 3, 4], [-1, -1, -1, -1, -1, 0])) == 4
    assert agree(one, seen(task, [1, 2, 3], [-1, -1, 0])) == 0
    assert one.counts[0].sum() == 5


def test_graphs_agree_in_relations_from_the_question_on():
    """However its nodes are numbered; the others keep their order."""
    task, rng = Composition(), np.random.default_rng(0)
    relations = rng.integers(-1, 1, (4, 4))
    asked = np.full((4, 4), -1)
    asked[2, 0] = 1
    one = seen(task, [3, 1, 2, 0], asked, relations)
    order = [2, 0, 1, 3]
    turned = np.full((4, 4), -1)
    turned[0, 1] = 1
    assert agree(one, seen(task, [9, 8, 7, 6], turned, relations[np.ix_(order, order)])) == 16
    assert agree(one, seen(task, [3, 1, 2, 0], turned, relations)) < 16
    of_pair = one.counts[0, 2 + 16 :]
    assert of_pair[:4].tolist() == [*np.eye(2)[relations[2, 0] + 1], *np.eye(2)[relations[0, 2] + 1]]
    assert (of_pair[4:20].argmax(), of_pair[20:36].argmax(), of_pair[36]) == (2, 3, 0)
    same = np.where(np.arange(4)[:, None] == [1], np.where(np.arange(4) == 1, 0, -1), -1)
    itself = seen(task, [3, 1, 2, 0], same, relations)
    assert itself.counts[0, -1] == 1
    assert itself.places[0].sum() == 16


class Leak(Task):
    """Words whose answer is whether there are more ones than zeros; the test has words of training."""

    kind: ClassVar[Any] = "sequence"
    vocabulary: ClassVar[int] = 2
    classes: ClassVar[int] = 2
    tests: ClassVar[tuple[str, ...]] = ("again",)
    measure: ClassVar[str] = "again"

    def draw(self, key, count, split="train"):
        del key, split
        tokens = np.random.default_rng(1).integers(0, 2, (2048, 15))[:count]
        targets = np.where(np.arange(15) == 14, tokens.sum(axis=1, keepdims=True) > 7, -1)
        return Problems(jnp.asarray(tokens), jnp.asarray(targets))


def test_a_leak_is_found():
    """By counting, and by the words that training has, too."""
    found = shallow.measure(Leak())
    assert found["constant"] == 0.5
    assert found["nearest"] == 1
    assert found["counts"] > 0.95


def test_the_program_writes_what_it_measures(tmp_path, monkeypatch):
    """Into a folder that it makes."""
    file = tmp_path / "out" / "shallow.json"
    monkeypatch.setattr(shallow, "TASKS", {"leak": Leak()})
    monkeypatch.setattr(shallow.flags, "FLAGS", SimpleNamespace(out=str(file)))
    shallow.main()
    found = {"test": "again", **shallow.measure(Leak()), "answers": shallow.frequencies(Leak())}
    assert json.loads(file.read_text()) == {"leak": found}


ABOVE = {
    "match3": 0.2, "composition": 0.22, "quotient": 0.16, "paths": 0.22, "kinship": 0.16, "rcc8": 0.24,
    "s5": 0.05, "modular_arithmetic": 0.05,
}  # fmt: skip
"""By task: how far above a constant answer they are at most; on graphs a part can be answered."""


def check(name: str, found: Any) -> None:
    """Neither is far above a constant answer, nor far below it, as it is if values say what is held out."""
    for classifier in ("counts", "nearest"):
        above = found[classifier] - found["constant"]
        assert -0.05 < above < ABOVE[name], classifier


@pytest.mark.parametrize("name", TASKS)
def test_how_much_can_be_answered_without_composing(name):
    check(name, shallow.measure(TASKS[name]))


def test_answers_are_counted_in_every_split():
    """Of the leak, all splits are the same words."""
    found = shallow.frequencies(Leak())
    yes = np.mean(np.random.default_rng(1).integers(0, 2, (2048, 15)).sum(axis=1) > 7)
    assert found == {split: [round(1 - yes, 4), round(yes, 4)] for split in ("train", "again")}


def test_no_more_than_some_questions_are_kept(monkeypatch):
    monkeypatch.setattr(shallow, "MOST", 3)
    found = seen(Match3(), [5, 5, 7, 1], [0, 1, 1, 1])
    assert len(found.counts) == len(found.places) == len(found.answers) == 3


def test_the_page_has_what_was_measured():
    """A row per task: a constant answer, counts, nearest, and the most frequent answer of every split."""
    recorded = json.loads((ROOT / "results/reasoning/shallow.json").read_text(encoding="utf-8"))
    assert list(recorded) == list(TASKS)
    page = (ROOT / "docs/how_to/reasoning_suite.md").read_text(encoding="utf-8")
    for name, found in recorded.items():
        check(name, found)
        answers = found.pop("answers")
        assert found.pop("test") == TASKS[name].measure
        assert list(answers) == ["train", *TASKS[name].tests]
        assert all(sum(shares) == pytest.approx(1, abs=0.01) for shares in answers.values())
        shown = [f"{value:.3f}".lstrip("0") for value in found.values()]
        shown.append(" ".join(f"{max(shares):.2f}".lstrip("0") for shares in answers.values()))
        assert f"| `{name}` | `{TASKS[name].measure}` | {' | '.join(shown)} |" in page
