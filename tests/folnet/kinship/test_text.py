"""Stories express their problems: reading the English sentences recovers the graph."""

import collections
import re

import numpy as np
import pytest

from folnet import kinship
from folnet.kinship.text import NAMES, TEMPLATES, WORDS, answer_sentence, tell
from folnet.tokenization import SPECIAL_TOKENS, WordPieceTokenizer
from tests.folnet import kinship_solver

SOURCE = kinship.Kinship(seed=4, lengths=(2, 3, 5, 8), supporting=1, irrelevant=1, disconnected=1)
COUNT = 250

WORD = (
    "(?P<r>son|daughter|father|mother|husband|wife|brother|sister|grandson|granddaughter|grandfather|"
    "grandmother|uncle|aunt)"
)
WITH = "walked to school|built a kite|bought a house|shared a room|spent the summer|went fishing"
X, Y = r"(?P<x>[A-Z][a-z]+)", r"(?P<y>[A-Z][a-z]+)"
READINGS = (  # what English says about who is whose, in the reader's own words
    rf"{Y} is the {WORD} of {X}",
    rf"{Y} is {X}'s {WORD}",
    rf"{X}'s {WORD} is {Y}",
    rf"{X} has an? {WORD} called {Y}",
    rf"{X} introduced {Y} as (?P=x)'s {WORD}",
    rf"{X} (?:{WITH}) with an? {WORD}, {Y}",
    rf"{X} taught an? {WORD}, {Y}, to ride a bicycle",
    rf"{X} (?:cooked dinner|knitted a scarf) for an? {WORD}, {Y}",
    rf"{X} (?:read a book|wrote a letter) to an? {WORD}, {Y}",
    rf"{X} got a present from an? {WORD}, {Y}",
    rf"{X} grew up in the house of an? {WORD}, {Y}",
    rf"{X} met {Y}, now the {WORD} of (?P=x), on a train",
    rf"{Y}, (?:an?|the) {WORD} of {X}, (?:learned|came|likes|plays|visits|tells|lives)\b[a-zA-Z ]*",
)


def read(sentence: str) -> tuple[str, str, str]:
    """Parses a sentence to (x, r, y), y being the r of x; it must have a single reading."""
    found = [match for reading in READINGS if (match := re.fullmatch(reading + r"\.", sentence))]
    assert len(found) == 1, sentence
    return found[0]["x"], found[0]["r"], found[0]["y"]


@pytest.fixture(scope="module")
def stories() -> list[kinship.Story]:
    """Writes the stories of the first problems."""
    return [SOURCE.story(index) for index in range(COUNT)]


def test_stories_are_read_back(stories):
    """Every sentence expresses its fact, every fact occurs once. The question names both people in order."""
    for story in stories:
        problem, names = story.problem, story.names
        sentences = re.findall(r"[^.]+\.", story.text)
        read_back = [read(sentence.strip()) for sentence in sentences]
        facts = [(names[x], kinship.RELATIONS[relation], names[y]) for x, relation, y in problem.facts]
        assert sorted(read_back) == sorted(facts)
        assert [facts[sentence.fact] for sentence in story.sentences] == read_back
        asked = re.fullmatch(r"How is (\w+) related to (\w+)\?", story.question)
        assert asked
        y, x = asked.groups()
        assert (names.index(x), names.index(y)) == problem.query
        for sentence in story.sentences:
            assert not re.search(r"\b(?:a [aeiou]|an [^aeiou])", sentence.text)
        assert story.answer == problem.answer_name


def test_a_story_read_back_has_the_stated_answer(stories):
    """Found by parsing and solving the text alone."""
    graphs, queries = [], []
    for story in stories:
        facts = [read(sentence.strip()) for sentence in re.findall(r"[^.]+\.", story.text)]
        people = sorted({name for x, _, y in facts for name in (x, y)})
        graphs.append([(people.index(x), kinship.RELATIONS.index(r), people.index(y)) for x, r, y in facts])
        y, x = re.findall(r"[A-Z][a-z]+", story.question.removeprefix("How "))
        queries.append((people.index(x), people.index(y)))
    known = kinship_solver.closure(graphs, 20)
    for row, (story, (x, y)) in enumerate(zip(stories, queries, strict=True)):
        found = {name for r, name in enumerate(kinship.RELATIONS) if known[r, row, x] >> y & 1}
        assert found == {story.answer}


def test_people_are_told_by_number(stories):
    """Putting the names back gives the text; nothing else has one in it."""
    for place, story in enumerate(stories[:50]):
        named = (story.names[part] if isinstance(part, int) else part for part in story.numbered_text)
        assert "".join(named) == story.text
        words = {
            word for part in story.numbered_text if isinstance(part, str) for word in re.findall(r"\w+", part)
        }
        assert not words & set(story.names)
        assert {part for part in story.numbered_text if isinstance(part, int)} == set(
            range(story.problem.num_people)
        )
        assert SOURCE.numbered_text(place) == SOURCE.story(place).numbered_text


def test_names_are_different_people(stories):
    """Each name in a story is one person; all names occur."""
    for story in stories:
        assert len(set(story.names)) == len(story.names) == story.problem.num_people
    assert {name for story in stories for name in story.names} == set(NAMES)
    assert (
        len(set(NAMES))
        == len(NAMES)
        >= kinship.Kinship(lengths=(10,), supporting=8, irrelevant=8, disconnected=8).max_people
    )


def test_sentences_say_no_gender_but_by_relations():
    """There are no pronouns, names are not other words, and every template mentions both people."""
    words = set()
    for options in TEMPLATES:
        assert len(options) == len(set(options)) == 8
        for template in options:
            assert "{x}" in template
            assert "{y}" in template
            words |= set(re.findall(r"[a-z]+", template.lower()))
    assert not words & {"he", "she", "his", "her", "him", "hers", "man", "woman", "boy", "girl", "mr", "mrs"}
    assert not words & {name.lower() for name in NAMES}


def test_all_wordings_come_up(stories):
    """Each of the fourteen relations has all its templates."""
    assert len(TEMPLATES) == 14
    wordings = collections.defaultdict(set)
    for story in stories:
        for sentence in story.sentences:
            text = sentence.text
            x, relation, y = story.problem.facts[sentence.fact]
            text = re.sub(rf"\b{story.names[x]}\b", "{x}", text)
            wordings[relation].add(re.sub(rf"\b{story.names[y]}\b", "{y}", text))
    assert all(wordings[relation] == set(TEMPLATES[relation]) for relation in range(14))


def test_order_is_the_facts_unless_shuffled(stories):
    """Shuffling keeps the sentences and usually changes their order."""
    moved = 0
    for index in range(60):
        plain = SOURCE.story(index, shuffle=False)
        assert [sentence.fact for sentence in plain.sentences] == list(range(len(plain.problem.facts)))
        assert sorted(plain.sentences) == sorted(stories[index].sentences)
        moved += plain.sentences != stories[index].sentences
    assert moved > 50
    assert sum(story.sentences[0].fact == 0 for story in stories) < COUNT / 3


def test_wording_does_not_depend_on_anything_else():
    """Two generators give a problem other names; equal generators give the same."""
    problem = SOURCE[0]
    first, again, other = (tell(problem, np.random.default_rng(seed)) for seed in (1, 1, 2))
    assert first == again
    assert first.names != other.names
    assert first.problem == other.problem


def test_proofs_are_read_back(stories):
    """Each sentence composes facts given or concluded before; the last concludes the answer."""
    part = r"(\w+) is the ([a-z-]+) of (\w+)"
    for story in stories:
        known = {read(sentence.text) for sentence in story.sentences}
        steps = re.findall(rf"{part} and {part}, so {part}\.", story.proof)
        assert len(steps) == story.problem.length - 1 == story.proof.count(".")
        for z1, r1, x1, y1, r2, z2, y, r, x in steps:
            assert (x1, r1, z1) in known
            assert (z2, r2, y1) in known
            assert (z1, x1, y1) == (z2, x, y)
            assert kinship.compose(r1, r2) == r
            known.add((x, r, y))
        x, y = (story.names[person] for person in story.problem.query)
        assert steps[-1][-3:] == (y, story.answer, x)
        assert answer_sentence(story.problem, story.names) == f"{y} is the {story.answer} of {x}."


def split(text: str) -> list[str]:
    """Splits a text into words and punctuation."""
    return re.findall(r"\w+|[^\w\s]", text)


def test_stories_and_questions_go_through_the_tokenizer(stories):
    """In stories, questions and proofs each word is one piece, and all pieces are used."""
    texts = [story.text for story in stories]
    questions = [story.question for story in stories]
    tokenizer = WordPieceTokenizer([*SPECIAL_TOKENS, *WORDS])
    texts += [f"{story.proof} {story.answer}" for story in stories]
    questions += [story.question for story in stories]
    inputs = tokenizer(texts, questions)
    used = set()
    for row, (text, asked) in enumerate(zip(texts, questions, strict=True)):
        segments = inputs.token_type_ids[row]
        first = inputs.input_ids[row][(segments == 0) & inputs.attention_mask[row]]
        second = inputs.input_ids[row][(segments == 1) & inputs.attention_mask[row]]
        for ids, expected in ((first, text), (second, asked)):
            pieces = [tokenizer.vocabulary[i] for i in ids if tokenizer.vocabulary[i] != "[SEP]"]
            assert pieces[text is expected :] == split(expected.lower())
            used.update(pieces)
    assert used - {"[CLS]"} == set(WORDS)
    assert list(WORDS) == sorted(WORDS)  # or ids would change from process to process
