"""Small expressions: their answers as Python gives them, and the roles that they have."""

import dataclasses
import random
import re
import types

import numpy as np
import pytest

from experiments.mathematics import figures, probing, syntax
from experiments.mathematics.expressions import LARGEST, MODULES, Expressions
from experiments.runtime import FitResult
from tests.experiments.mathematics.small import MODEL, small
from tp_transformer.evaluation import Scores, Share

SOURCE = Expressions(train=400, test=50, seed=3)
FORMS = {"flat": "{} {} {} {} {}", "left": "({} {} {}) {} {}", "right": "{} {} ({} {} {})"}


@pytest.mark.parametrize("module", MODULES)
def test_answers_are_those_of_python(module):
    rng, numbers, signs = random.Random(0), set(), set()
    for _ in range(400):
        question, answer = SOURCE.draw(module, rng)
        (text,) = re.findall(r"What is (.*)\?", question)
        assert re.sub(r"\d+|[+-]", "{}", text) == FORMS[module]
        assert eval(text) == int(answer)  # of numbers, signs and brackets
        numbers |= set(map(int, re.findall(r"\d+", text)))
        signs.add("".join(re.findall(r"[+-]", text)))
    assert numbers == set(range(LARGEST + 1))
    assert signs == {"++", "+-", "-+", "--"}


def test_no_form_is_held_out_and_test_questions_are_new():
    assert SOURCE.modules("extrapolate") == ()
    assert SOURCE.modules("train") == SOURCE.modules("interpolate") == MODULES
    for module in MODULES:
        training, test = (list(SOURCE.questions(split, module)) for split in ("train", "interpolate"))
        assert (len(training), len(test)) == (400, 50)
        assert not {question for question, _ in training} & {question for question, _ in test}


def test_every_role_of_a_digit_has_two_classes():
    """Otherwise there would be nothing to read."""
    found = {name: set() for name in probing.READ}
    for module in MODULES:
        for question, _ in SOURCE.questions("interpolate", module):
            parsed = syntax.parse(question)
            assert parsed is not None, question
            for name, seen in found.items():
                seen |= set(getattr(parsed, name)[parsed.kind == 0].tolist())
    assert found == {name: {0, 1} for name in found}


def test_the_picture_of_roles_has_all_forms(monkeypatch, tmp_path):
    """In turn, in a run on expressions; a run on the dataset's modules shows the first."""
    drawn = []
    monkeypatch.setattr(figures, "of_roles", lambda *arguments: drawn.append(arguments[-1]))
    monkeypatch.setattr(figures, "learning", lambda *_: None)
    monkeypatch.setattr(figures.runtime.plots, "save", lambda figure, path: path)
    result = FitResult(
        state=None, params={}, summary={}, step=1, metrics={}, train_seconds=1.0,
        results={"commonest_answer": {"interpolate": Scores("interpolate", {"flat": Share(1, 2)}).to_json()}},
    )  # fmt: skip
    monkeypatch.setattr(figures, "bars", lambda *_, **__: None)
    result.results["interpolate"] = result.results["commonest_answer"]["interpolate"]
    own = dataclasses.replace(small().data, questions="expressions", modules=(), test=20)
    for config in (small(data=own), small()):
        figures.draw(tmp_path, {"tp_transformer": config}, {"tp_transformer": result}, config.data.open())
    assert drawn == [MODULES, small().data.modules[:1]]


def test_questions_of_all_forms_take_turns(monkeypatch):
    shown = []
    monkeypatch.setattr(figures, "coloured", lambda questions, *_, title: shown.extend([*questions, title]))
    clusters = types.SimpleNamespace(labels=[], inertia=1.0, total=4.0)
    monkeypatch.setattr(figures.roles, "cluster_roles", lambda *_, **__: clusters)
    figures.of_roles(small(role_questions=8), MODEL.make(), {}, SOURCE, MODULES)  # pyrefly: ignore
    *questions, title = shown
    first, second, third = (SOURCE.questions("interpolate", module)[0].question for module in MODULES)
    assert questions[:3] == [f"#{text}%" for text in (first, second, third)]
    assert len(questions) == 6
    assert title.startswith("flat, left, right: characters")


def test_the_symbol_hardly_gives_the_place():
    """The docstring's .55: a rule that sees the symbol alone, on all numbers."""
    digits = [(digit, place) for n in range(LARGEST + 1) for place, digit in enumerate(str(n)[::-1])]
    counts = {digit: [digits.count((digit, place)) for place in (0, 1)] for digit in "0123456789"}
    assert counts == {"0": [10, 0]} | {digit: [10, 10] for digit in "123456789"}
    sizes = np.sum(list(counts.values()), axis=0)
    best = max(
        np.mean([sum(counts[d][p] for d in counts if (d in tens) == p) / sizes[p] for p in (0, 1)])
        for tens in ("123456789"[:count] for count in range(10))
    )
    assert best == pytest.approx(0.55)
