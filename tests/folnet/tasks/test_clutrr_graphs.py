"""CLUTRR's graphs in both forms of the files, against the columns; and damaged rows."""

import numpy as np
import pytest

from folnet import kinship
from folnet.kinship import Fact, deduce
from folnet.tasks.clutrr_graphs import Published
from tests.folnet import small_tasks
from tests.folnet.tasks.test_clutrr import COPY, ORIGINAL, copy_row, csv, original_row

COPIED, WRITTEN = "gen_train23_test2to10", "data_089907f8"
HERE = '"[(0, 1), (1, 2)]","[\'grandson\', \'brother\']","(0, 2)"'
THERE = "\"[(0, 1), (1, 0), (0, 2)]\",\"['wife', 'husband', 'son']\",\"(1, 2)\""


def test_facts_and_questions_are_those_of_the_columns(tmp_path):
    """Up to the numbers of people, which are drawn; a story may come back to someone."""
    rows = [original_row(0), original_row(1, "daughter", 3).replace(HERE, THERE)]
    small_tasks.write(tmp_path / WRITTEN / "1.2,1.3_train.csv", csv(ORIGINAL, *rows))
    source = Published(str(tmp_path), (2, 3), seed=7)
    assert (len(source), source.lengths, source.max_people, source.max_facts) == (2, (2, 3), 4, 3)
    first, second = source.draw(range(2))
    assert first == source[0] == source[np.int64(0)]
    (x, grandson, a), (also_a, brother, y) = first.facts
    assert a == also_a
    assert (first.query, first.num_people, first.length, first.answer_name) == ((x, y), 3, 2, "grandson")
    assert [kinship.RELATIONS[relation] for relation in (grandson, brother)] == ["grandson", "brother"]
    assert deduce(first.facts).between(*first.query) == [first.answer]
    (x, wife, y), back, (also_x, _, z) = second.facts
    assert (back, also_x) == (Fact(y, kinship.RELATIONS.index("husband"), x), x)
    assert (second.query, second.num_people, second.length) == ((y, z), 3, 3)
    assert kinship.RELATIONS[wife] == "wife"
    assert (first.kinds, first.proof) == (("chain", "chain"), ())
    assert list(source) == [first, second]  # where an index that is out of range does not end a loop
    for index in (-1, 2):
        with pytest.raises(ValueError, match=f"index: got {index}, expected 0 to 1"):
            source[index]


def test_tests_have_one_length_and_the_numbers_of_people_say_nothing(tmp_path):
    rows = [copy_row(number, k=2) for number in range(40)]
    rows.insert(3, copy_row(40, "daughter", 3).replace(HERE, THERE))
    small_tasks.write(tmp_path / COPIED / "test.csv", csv(COPY, *rows))
    two, three = (Published(str(tmp_path), (2, 3), "test", length) for length in (2, 3))
    assert (len(two), len(three), two.lengths) == (40, 1, (2,))
    assert three[0].length == 3
    assert {problem.query for problem in two.problems} == {
        (x, y) for x in range(3) for y in range(3) if x != y
    }


def test_rules_are_what_most_questions_of_two_facts_say(tmp_path):
    back = HERE.replace("(1, 2)]", "(1, 0)]").replace('"(0, 2)"', '"(0, 1)"')
    rows = [copy_row(0, "nephew"), copy_row(1), copy_row(2), copy_row(3).replace(HERE, back)]
    rows.append(copy_row(4, "daughter", 3).replace(HERE, THERE))
    small_tasks.write(tmp_path / COPIED / "train.csv", csv(COPY, *rows))
    small_tasks.write(tmp_path / COPIED / "test.csv", csv(COPY, copy_row(0, "uncle")))
    number = kinship.RELATIONS.index
    want = {(number("grandson"), number("brother")): number("grandson")}
    for source in (Published(str(tmp_path), (2, 3)), Published(str(tmp_path), (2, 3), "test", 2)):
        assert source.rules == want
    assert kinship.Kinship().rules == kinship.COMPOSITIONS


@pytest.mark.parametrize(
    ("row", "match"),
    [
        (HERE.replace("(1, 2)]", "(1, 2"), "line 2: story_edges: got .* expected a list as Python writes it"),
        (HERE.replace('"(0, 2)"', "2"), "line 2: query_edge: got '2', expected a tuple"),
        (HERE.replace(", (1, 2)]", "]"), "got 1 story_edges and 2 edge_types, expected 2 of each"),
        (
            HERE.replace(", (1, 2)]", "]").replace(", 'brother'", ""),
            "got 1 story_edges and 1 edge_types, expected 2 of each",
        ),
        (
            HERE.replace("brother", "uncle-in-law"),
            "got 'uncle-in-law' in edge_types, expected son,",
        ),
        (HERE.replace("(1, 2)", "(1, 3)"), r"got people \[0, 1, 3\] and the question \(0, 2\), expected"),
        (HERE.replace('"(0, 2)"', '"(0, 3)"'), r"and the question \(0, 3\), expected people from 0"),
        (HERE.replace("(1, 2)", "(1, 1)"), r"got \(1, 1\), expected two different people"),
        (HERE.replace("(1, 2)", "('a', 2)"), r"got \('a', 2\), expected two different people"),
    ],
)
def test_damaged_rows_are_named(tmp_path, row, match):
    small_tasks.write(tmp_path / "train.csv", csv(COPY, copy_row(0).replace(HERE, row)))
    source = Published(str(tmp_path), (2, 3))
    with pytest.raises(ValueError, match=rf"train\.csv, .*{match}"):
        len(source)


@pytest.mark.parametrize("relation", ["wife", "sister-in-law"])
def test_an_answer_that_nobody_asks_for_is_named(tmp_path, relation):
    small_tasks.write(tmp_path / "train.csv", csv(COPY, copy_row(0, relation)))
    message = rf"line 2: got the relation '{relation}', expected one of son, daughter"
    with pytest.raises(ValueError, match=message):
        len(Published(str(tmp_path), (2, 3)))


def test_unknown_data_sets_splits_and_lengths_are_named(tmp_path):
    folder = str(tmp_path)
    with pytest.raises(ValueError, match=r"train_lengths: got \(2, 4\), expected one of CLUTRR's: \(2, 3\)"):
        Published(folder, (2, 4))
    with pytest.raises(ValueError, match="split: got 'dev', expected 'train' or 'test'"):
        Published(folder, (2, 3), "dev")  # pyrefly: ignore[bad-argument-type]
    with pytest.raises(ValueError, match="length: got 11, expected 2 to 10 with the test split"):
        Published(folder, (2, 3), "test", 11)
    with pytest.raises(ValueError, match=r"expected clutrr23's train: .*1\.2,1\.3_train\.csv"):
        len(Published(folder, (2, 3)))


SAID = '"[Ann]\'s son, [Bob], sang. His brother [Cy] and [Ann]."'


def told_row(number, k=2, story=SAID, genders="Ann:female,Bob:male,Cy:male"):
    """Returns a row of the authors' files with this story about three people."""
    row = original_row(number, k=k).replace("[Jason] sat. [Lewis] ran.", story)
    return row.replace("Jason:male", f'"{genders}"')


def test_stories_have_their_people_by_number(tmp_path):
    """`genders` names the people in the order in which the edges number them."""
    rows = [told_row(number, 2 + number % 2) for number in range(6)]
    rows = [row.replace(HERE, THERE) if number % 2 else row for number, row in enumerate(rows)]
    small_tasks.write(tmp_path / "1.2,1.3_train.csv", csv(ORIGINAL, *rows))
    source = Published(str(tmp_path), (2, 3))
    numbers = set()
    for place, problem in enumerate(source.problems):
        ann, bob = problem.facts[0].x, problem.facts[0].y
        (cy,) = {0, 1, 2} - {ann, bob}
        assert source.numbered_text(place) == (
            *("", ann, "'s son, ", bob, ", sang. His brother ", cy, " and ", ann, "."),
        )
        numbers.add((ann, bob))
    assert len(numbers) > 1
    with pytest.raises(ValueError, match="index: got 6, expected 0 to 5"):
        source.numbered_text(6)


@pytest.mark.parametrize(
    "genders", ["Ann:female,Bob:male", "Ann:female,Bob:male,Bob:male", "Ann:female,Bob:male,Dan:male"]
)
def test_stories_whose_people_are_unknown_are_refused(genders, tmp_path):
    rows = told_row(0), told_row(1, genders=genders)
    small_tasks.write(tmp_path / "1.2,1.3_train.csv", csv(ORIGINAL, *rows))
    source = Published(str(tmp_path), (2, 3))
    assert len(source) == 2
    message = rf"1.2,1.3_train.csv, line 3: got '{genders}' in genders, expected the names of 3 people"
    with pytest.raises(ValueError, match=message):
        source.numbered_text(0)
