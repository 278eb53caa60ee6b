"""Drawing questions: determinism, coverage of modules, correctness of answers."""

import collections
import importlib
import json
import random
import re
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from tp_transformer.mathematics import questions as mathematics_questions
from tp_transformer.mathematics.modules import LEVELS, SPLITS, FileSplit, modules_of
from tp_transformer.mathematics.questions import Question, draw, fingerprint
from tp_transformer.mathematics.vocabulary import CHARACTERS, MAX_ANSWER, MAX_QUESTION

RECORDED = Path(__file__).parent / "data" / "questions.json"
FAST: list[tuple[FileSplit, str]] = [
    ("train-easy", "arithmetic__add_or_sub"),
    ("train-medium", "comparison__pair"),
    ("train-hard", "numbers__round_number"),
    ("interpolate", "polynomials__evaluate"),
    ("interpolate", "algebra__linear_1d_composed"),
    ("extrapolate", "numbers__place_value_big"),
]


def _check(questions, count):
    assert len(questions) == count
    for question, answer in questions:
        assert 0 < len(question) <= MAX_QUESTION
        assert 0 < len(answer) <= MAX_ANSWER
        assert set(question + answer) <= set(CHARACTERS)
        assert question == question.strip()
        assert answer == answer.strip()


def _recorded():
    with RECORDED.open(encoding="utf-8") as file:
        return json.load(file)


@pytest.mark.parametrize(("split", "module"), FAST)
def test_questions_are_what_was_recorded(split, module):
    """A seed reproduces recorded questions within the limits; shorter draws are prefixes."""
    drawn = draw(split, module, 4, seed=0)
    _check(drawn, 4)
    assert draw(split, module, 2, seed=0) == drawn[:2]
    assert [list(drawn[0])] == _recorded()[f"{split}/{module}"]


@pytest.mark.slow
def test_every_module_generates():
    """Draws twenty questions of every module and compares the first."""
    recorded = _recorded()
    for split in SPLITS:
        for module in modules_of(split):
            questions = draw(split, module, 20, seed=0)
            _check(questions, 20)
            assert len(set(questions)) > 10, module
            if split not in ("train-easy", "train-medium"):
                assert [list(questions[0])] == recorded[f"{split}/{module}"]


def test_seed_part_and_level_matter():
    """Other seeds, parts and splits give other questions."""
    some = [
        draw("train-easy", "arithmetic__mul", 5, seed=0),
        draw("train-easy", "arithmetic__mul", 5, seed=1),
        draw("train-easy", "arithmetic__mul", 5, seed=0, part=1),
        draw("train-medium", "arithmetic__mul", 5, seed=0),
    ]
    assert len({question for drawn in some for question in drawn}) == 20


def test_harder_levels_have_longer_numbers():
    """Entropy rises with the level: 3 to 5.3, 5.3 to 7.7, 7.7 to 10 digits; 8 and 12 in the test splits."""
    cases: list[tuple[FileSplit, str]] = [
        *((level, "numbers__place_value") for level in LEVELS),
        ("interpolate", "numbers__place_value"),
        ("extrapolate", "numbers__place_value_big"),
    ]
    digits = {}
    for split, module in cases:
        numbers = [int(re.findall(r"\d+", q)[-1]) for q, _ in draw(split, module, 200, seed=0)]
        digits[split] = [len(str(number)) for number in numbers]
        assert max(numbers) <= 10 ** {"interpolate": 8, "extrapolate": 12}.get(split, 10) + 1
    means = [np.mean(digits[split]) for split in ("train-easy", "train-medium", "train-hard", "extrapolate")]
    assert means == sorted(means)
    assert max(digits["train-easy"]) <= 6
    assert means[2] > means[0] + 3


def test_the_same_in_another_process():
    """Results depend on neither the hash seed, memory addresses nor earlier draws."""
    code = (
        "import json, sys, types\n"
        "package = types.ModuleType('tp_transformer')\n"  # without the models, so without JAX
        f"package.__path__ = [{str(Path(mathematics_questions.__file__).parents[1])!r}]\n"
        "sys.modules['tp_transformer'] = package\n"
        "from tp_transformer.mathematics.questions import draw\n"
        f"print(json.dumps([draw(s, m, 6, seed=5) for s, m in {FAST[::-1]!r}]))\n"
    )
    output = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONHASHSEED": "1", "PATH": ""},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    here = [[list(question) for question in draw(s, m, 6, seed=5)] for s, m in FAST[::-1]]
    assert json.loads(output) == here


@pytest.mark.unchecked  # beartype itself draws from Python's generator
def test_other_generators_are_left_alone():
    """Drawing does not change the state of Python's, NumPy's and SymPy's global generators."""

    def numbers():
        return random.random(), float(np.random.rand())  # noqa: NPY002

    random.seed(1)
    np.random.seed(1)  # noqa: NPY002
    expected = [numbers(), numbers()]
    random.seed(1)
    np.random.seed(1)  # noqa: NPY002
    first = numbers()
    draw("train-easy", "arithmetic__div", 3, seed=0)
    assert [first, numbers()] == expected
    rng = importlib.import_module("sympy.core.random").rng
    before = rng.getstate()
    draw("train-easy", "polynomials__expand", 1, seed=0)
    assert rng.getstate() == before


def test_what_is_too_long_is_drawn_again_and_what_is_unknown_is_an_error(monkeypatch):
    """160 and 30 characters are the most."""
    problem = collections.namedtuple("problem", "question answer")
    drawn = [("a" * 161, "1"), ("b" * 160, "1" * 30), ("c", "1" * 31), ("d", "2"), ("e", "B")]
    samples = iter(drawn)
    sampler = {"numbers__gcd": lambda: problem(*next(samples))}
    monkeypatch.setattr(mathematics_questions, "_samplers", lambda split: sampler)
    assert draw("train-easy", "numbers__gcd", 2, seed=0) == [drawn[1], drawn[3]]
    with pytest.raises(RuntimeError, match="train-easy/numbers__gcd: 'e', 'B' is not in the vocabulary"):
        draw("train-easy", "numbers__gcd", 1, seed=0)
    samples = iter([("B", "1")])
    with pytest.raises(RuntimeError, match="'B', '1' is not in the vocabulary"):
        draw("train-easy", "numbers__gcd", 1, seed=0)


def _value(expression: str, **letters: Fraction) -> Fraction:
    """Evaluates an expression of the dataset in exact fractions."""
    whole = re.sub(r"(?<![\w.])(\d+)(?![\w.])", r"Fraction(\1)", expression)
    # Exponents are whole numbers, which a fraction would turn into floats.
    whole = re.sub(r"\*\*Fraction\((\d+)\)", r"**\1", whole)
    return eval(whole, {"Fraction": Fraction}, letters)


@pytest.mark.parametrize("split", ["train-hard", "interpolate"])
def test_expanded_polynomials_are_equal(split):
    """`polynomials__expand` uses three of the repairs; both sides must be the same polynomial."""
    for question, answer in draw(split, "polynomials__expand", 6, seed=2):
        match = re.fullmatch(r"Expand (.+)\.", question)
        assert match, question
        (letter,) = set(re.findall(r"[a-z]", match[1]))
        for point in map(Fraction, (-2, 1, 3, 7, 11, 101)):
            assert _value(match[1], **{letter: point}) == _value(answer, **{letter: point}), question


def test_rounding_is_right():
    """`numbers__round_number` uses the repair of random.randint."""
    seen = 0
    names = {"integer": 0, "ten": 1, "one hundred": 2, "one thousand": 3, "ten thousand": 4}
    names |= {"one hundred thousand": 5, "one million": 6}
    words = ["zero", "one", "two", "three", "four", "five", "six", "seven"]
    for question, answer in draw("train-medium", "numbers__round_number", 60, seed=0):
        match = re.search(r"(-?[\d.]+?) (?:rounded )?to (.+?)[.?]$", question)
        assert match, question
        number, place = Fraction(match[1]), match[2].removeprefix("the nearest ")
        if places := re.fullmatch(r"(\w+) (?:decimal places?|dps?)", place):
            word = places[1]
            power = -(words.index(word) if word in words else int(word))
        else:
            power = names[place] if place in names else len(place) - 1
        unit = Fraction(10) ** power
        assert round(number / unit) * unit == Fraction(answer), question
        seen += power != 0
    assert seen > 20


def test_excluded_questions_are_not_drawn():
    """Excluding questions leaves the others unchanged and in order."""
    module = "measurement__time"
    drawn = draw("train-easy", module, 40, seed=0)
    exclude = {fingerprint(question) for question, _ in drawn[::3]}
    rest = draw("train-easy", module, 20, seed=0, exclude=exclude)
    assert rest == [question for i, question in enumerate(drawn) if i % 3][:20]


class _Everything:
    def __contains__(self, item):
        return True


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("train", "numbers__gcd", 1), "split: got 'train', expected"),
        (("interpolate", "numbers_gcd", 1), "a known name such as numbers__gcd"),
        (("interpolate", "numbers__gcd", -1), "count: got -1, expected at least 0"),
    ],
)
def test_refusals(arguments, message):
    """Names and numbers are checked first."""
    with pytest.raises(ValueError, match=message):
        draw(*arguments, seed=0)
    with pytest.raises(ValueError, match=r"seed: got .*, expected at least 0"):
        draw("interpolate", "numbers__gcd", 1, seed=-1)
    with pytest.raises(ValueError, match="part: got -1, expected at least 0"):
        draw("interpolate", "numbers__gcd", 1, seed=0, part=-1)


def test_an_exhausted_module_is_said_to_be_one():
    """If every question is excluded, drawing raises instead of looping forever."""
    with pytest.raises(ValueError, match=r"exclude: got all of .* numbers__place_value of train-easy"):
        draw("train-easy", "numbers__place_value", 1, seed=0, exclude=_Everything())


def test_only_a_thousand_excluded_draws_in_a_row_exhaust_a_module():
    class Counting:
        """Excludes as many draws in a row as given, then allows one, and so on."""

        def __init__(self, row):
            self.row, self.seen = row, 0

        def __contains__(self, item):
            self.seen += 1
            return self.seen % (self.row + 1) != 0

    assert len(draw("train-easy", "measurement__time", 3, seed=0, exclude=Counting(999))) == 3
    with pytest.raises(ValueError, match="exclude: got all of 1000 consecutive draws"):
        draw("train-easy", "measurement__time", 1, seed=0, exclude=Counting(1000))


def test_a_question_is_a_pair():
    """A question unpacks, and its fingerprint depends on its text alone."""
    question, answer = Question("What is 1?", "1")
    assert (question, answer) == ("What is 1?", "1")
    assert fingerprint(question) == fingerprint("What is 1?") != fingerprint("What is 2?")
    assert 0 <= fingerprint(question) < 2**64
    assert len(SPLITS) == 5
