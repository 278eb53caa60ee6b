"""Small expressions: their answers as Python gives them, and the roles that they have."""

import random
import re

import pytest

from experiments.mathematics import syntax
from experiments.mathematics.expressions import FORMS, LARGEST, Expressions

SOURCE = Expressions(train=400, test=50, seed=3)


@pytest.mark.parametrize("module", FORMS)
def test_answers_are_those_of_python(module):
    rng, numbers, signs = random.Random(0), set(), set()
    for _ in range(300):
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
    assert SOURCE.modules("train") == SOURCE.modules("interpolate") == tuple(FORMS)
    for module in FORMS:
        training, test = (list(SOURCE.questions(split, module)) for split in ("train", "interpolate"))
        assert (len(training), len(test)) == (400, 50)
        assert not {question for question, _ in training} & {question for question, _ in test}


def test_every_role_of_a_digit_has_two_classes():
    """Otherwise there would be nothing to read."""
    found = {name: set() for name in ("place", "depth", "operand", "inverse")}
    for module in FORMS:
        for question, _ in SOURCE.questions("interpolate", module):
            parsed = syntax.parse(question)
            assert parsed is not None, question
            for name, seen in found.items():
                seen |= set(getattr(parsed, name)[parsed.kind == 0].tolist())
    assert found == {name: {0, 1} for name in found}
