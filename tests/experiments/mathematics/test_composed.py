"""Composed questions: their answers by independent arithmetic on the text, and which are held out."""

import dataclasses
import random
import re

import pytest

from experiments.mathematics import binding_claims, composed, measures, train
from tests.experiments.mathematics.small import small
from tp_transformer import mathematics


def computed(text, known):
    """Evaluates a form of the questions, with letters as known."""
    numbers = [known[word] if word in known else int(word) for word in re.findall(r"-?\d+|\b[a-z]\b", text)]
    if text.startswith("the second"):
        return sorted(numbers, reverse=True)[1]
    if text.startswith("the closest"):
        return sorted(numbers[1:], key=lambda number: (number - numbers[0]) ** 2)[0]
    return eval(text, {}, dict(known))  # of digits, letters, and signs only


@pytest.mark.parametrize("pair", composed.PAIRS, ids=lambda pair: composed.name_of(*pair))
def test_answers_are_right(pair):
    """Read anew from the text; the letter is an operand at every place."""
    rng, places = random.Random(3), set()
    for _ in range(60):
        question, answer = composed.compose(pair[0], pair[1], rng)
        found = re.fullmatch(r"Let ([a-z]) be (.*)\. What is (.*)\?", question)
        assert found is not None
        letter, inner, outer = found.groups()
        inner_form, outer_form = (
            re.escape(composed.FUNCTIONS[name].form).replace(r"\{\}", f"({operand})")
            for name, operand in zip(pair[::-1], (r"-?\d+", rf"-?\d+|{letter}"), strict=True)
        )
        assert re.fullmatch(inner_form, inner)
        operands = re.fullmatch(outer_form, outer)
        assert operands is not None
        places.add(operands.groups().index(letter))
        assert computed(outer, {letter: computed(inner, {})}) == int(answer), question
    assert places == set(range(composed.FUNCTIONS[pair[0]].form.count("{}")))


def test_the_largest_numbers_are_asked():
    """Up to 20, either sign; of products up to 9."""
    rng = random.Random(0)
    for pair, largest in ((("sum", "sum"), 20), (("product", "product"), 9)):
        texts = " ".join(composed.compose(*pair, rng).question for _ in range(300))
        assert max(int(number) for number in re.findall(r"\d+", texts)) == largest


def test_ties_are_not_asked():
    """Neither two equal numbers nor two equally close ones."""
    second, closest = (composed.FUNCTIONS[name].value for name in ("second", "closest"))
    assert (second(3, 3, 1), second(4, 9, -2)) == (None, 4)
    assert (closest(0, 5, -5), closest(0, 5, -4)) == (None, -4)


def test_each_function_is_held_out_once_as_the_inner_one():
    assert len(composed.PAIRS) == 25
    assert sorted(inner for _, inner in composed.HELD_OUT) == sorted(composed.FUNCTIONS)


def test_guesses_are_right_more_often_where_the_answer_is_shown():
    """They depend on the outer question alone."""
    asked = "Let b be {}. What is the closest to 1 in b, 3?"
    first, second = (composed.guess("closest", "sum", asked.format(inner)) for inner in ("2 + 3", "9 + 9"))
    assert first == second == "3"
    source = composed.Composed(train=10, test=60, seed=5)

    def right(outer, inner, split):
        asked = source.questions(split, composed.name_of(outer, inner))
        return sum(composed.guess(outer, inner, question) == answer for question, answer in asked) / 60

    assert right("closest", "difference", "interpolate") > 0.4
    assert all(right(*pair, "extrapolate") < 0.25 for pair in composed.HELD_OUT)


def test_compositions_are_divided_and_test_questions_are_new():
    source = composed.Composed(train=900, test=60, seed=5)
    trained, held_out = source.modules("interpolate"), source.modules("extrapolate")
    assert source.modules("train") == trained
    assert (len(trained), len(held_out)) == (20, 5)
    assert set(held_out) == {composed.name_of(*pair) for pair in composed.HELD_OUT}
    assert not set(trained) & set(held_out)
    for module in ("product_of_product", "sum_of_sum"):
        training, test = (list(source.questions(split, module)) for split in ("train", "interpolate"))
        assert (len(training), len(test)) == (900, 60)
        assert not {question for question, _ in training} & {question for question, _ in test}
    (first, *_), rng = (
        source.questions("interpolate", "second_of_product"),
        random.Random("5/second_of_product"),
    )
    assert first == composed.compose("second", "product", rng)
    again = dataclasses.replace(source, train=3)
    assert list(again.questions("interpolate", "sum_of_sum")) == test
    assert list(dataclasses.replace(source, seed=6).questions("interpolate", "sum_of_sum")) != test
    with pytest.raises(ValueError, match="module: got 'sum_of_product', expected one of sum_of_sum, "):
        source.questions("train", "sum_of_product")


def test_a_run_trains_on_some_compositions_and_is_tested_on_the_others():
    config = dataclasses.replace(
        binding_claims.composed_base("transformer", 8), batch_size=4, eval_batch_size=10
    )
    config = dataclasses.replace(config, data=dataclasses.replace(config.data, train=3, test=2, validation=1))
    config.validate()
    source = config.data.open()
    batches = train.training_batches(config, source)
    assert batches.modules == source.modules("train")
    assert batches[0].source.shape in ((4, 64), (4, 104))
    tests = measures.test_batches(config, source, 0)
    assert {split: len(of_split.modules) for split, of_split in tests.items()} == {
        "interpolate": 20, "extrapolate": 5, "validation": 20,
    }  # fmt: skip
    assert tests["extrapolate"].num_questions == 10
    assert tests["validation"].num_questions == 20


def test_composed_questions_exclude_others():
    with pytest.raises(ValueError, match=r"data\.questions: got 'composed', expected no directory"):
        small(data=dataclasses.replace(small().data, questions="composed")).validate()
    with pytest.raises(ValueError, match=r"data\.questions: got 'own', expected one of 'dataset'"):
        small(data=dataclasses.replace(small().data, questions="own")).validate()


def test_the_longest_question_has_room():
    """In the larger bucket of the declared runs, with start and end: three characters for each number."""
    config = binding_claims.composed_base("transformer", 8)
    (_, (source, target)) = config.data.shapes()
    forms = [function.form for function in composed.FUNCTIONS.values()]
    longest = max(len(form.format(*["-20"] * form.count("{}"))) for form in forms)
    assert len("Let x be . What is ?") + 2 * longest - 2 + 2 <= source  # one operand is a letter
    assert len(str(-9 * 9 * 9)) + 2 <= target
    questions = [composed.compose(outer, inner, random.Random(1)) for outer, inner in composed.PAIRS]
    assert {c for pair in questions for text in pair for c in text} <= set(mathematics.CHARACTERS)
