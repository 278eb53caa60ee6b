"""The models' input arrays against the problems they encode."""

import numpy as np
import pytest

from experiments.kinship import inputs
from folnet import kinship
from tests.experiments.kinship.small import published, with_data

SOURCE = kinship.Kinship(seed=3, lengths=(2, 5), irrelevant=1)
NUMBERS = range(10, 30)
ROOM = inputs.Room(SOURCE.max_people, 6)


def pieces(row, mask, sep):
    """Returns the tokens of the facts and those of the question, without special tokens."""
    tokens = row[mask].tolist()
    start = tokens.index(sep)
    assert (tokens[-1], tokens.count(sep)) == (sep, 2)
    return tokens[1:start], tokens[start + 1 : -1]


def test_a_graph_is_its_symbols():
    found = inputs.Graph(9)(SOURCE, NUMBERS)
    wanted = kinship.symbols(SOURCE.draw(NUMBERS), num_people=9)
    assert set(found) == {"input_ids", "attention_mask", "relation_ids", "labels"}
    for name, array in found.items():
        np.testing.assert_array_equal(array, getattr(wanted, name))


def test_inverses_are_given_for_the_reversed_pair():
    found = inputs.Graph(9, inverses=True)(SOURCE, NUMBERS)["relation_ids"]
    plain = inputs.Graph(9)(SOURCE, NUMBERS)["relation_ids"]
    assert found.shape == (*plain.shape, 2)
    np.testing.assert_array_equal(found[..., 0], plain)
    for row, x, y in np.argwhere(plain >= 0).tolist():
        assert found[row, y, x, 1] == plain[row, x, y] + kinship.RELATION_VOCAB_SIZE
    assert (found[..., 1] >= 0).sum() == (plain >= 0).sum()


@pytest.mark.parametrize("spread", [True, False])
def test_a_graph_written_out_says_what_the_problem_says(spread):
    """Decoded independently, the facts imply the label and no other relation of the two people."""
    read = inputs.WrittenGraph(ROOM, 11, spread=spread)
    found = read(SOURCE, NUMBERS)
    first_name, orders = 3 + kinship.NUM_EDGES, set()
    for place, number in enumerate(NUMBERS):
        row, mask, problem = found["input_ids"][place], found["attention_mask"][place], SOURCE[number]
        tokens, question = pieces(row, mask, read.sep)
        facts = [tuple(tokens[at : at + 3]) for at in range(0, len(tokens), 3)]
        facts = [(x - first_name, relation - 3, y - first_name) for x, relation, y in facts]
        x, y = (token - first_name for token in question)
        assert len(facts) == len(problem.facts)
        (answer,) = kinship.deduce(facts).between(x, y)
        assert kinship.TARGETS.index(answer) == found["labels"][place] == problem.label
        orders.add(tuple(relation for _, relation, _ in facts) == tuple(f.relation for f in problem.facts))
        assert all(0 <= name < 11 for fact in facts for name in (fact[0], fact[2]))
        assert (row[~mask] == read.pad).all()
        assert mask.sum() == 1 + 3 * len(facts) + 4
        assert spread or mask[: mask.sum()].all()
        segments = np.zeros(len(row), int)
        segments[np.flatnonzero(mask)[-3:]] = 1
        np.testing.assert_array_equal(found["token_type_ids"][place], segments)
    assert False in orders  # the order of the chain would give it away
    names = found["input_ids"][found["input_ids"] >= first_name]
    assert set(names.tolist()) == set(range(first_name, read.vocab_size))


def test_names_tell_people_apart_and_nothing_else():
    """A problem's people have different names, all of which occur, and the same in a graph and a list."""
    found = inputs.Graph(9, pairs=True, marked=False, names=11)(SOURCE, NUMBERS)
    plain = inputs.Graph(9, pairs=True, marked=False)(SOURCE, NUMBERS)
    people = plain["input_ids"] == kinship.arrays.PERSON
    names = [row[is_person].tolist() for row, is_person in zip(found["input_ids"], people, strict=True)]
    assert all(len(set(row)) == len(row) for row in names)
    assert set(np.concatenate(names)) == set(range(kinship.VOCAB_SIZE, kinship.VOCAB_SIZE + 11))
    np.testing.assert_array_equal(found["input_ids"][~people], plain["input_ids"][~people])
    np.testing.assert_array_equal(found["relation_ids"], plain["relation_ids"])
    again = inputs.Graph(9, pairs=True, marked=False, names=11)(SOURCE, NUMBERS[3:4])
    np.testing.assert_array_equal(again["input_ids"][0], found["input_ids"][3])


@pytest.mark.parametrize("marked", [True, False])
@pytest.mark.parametrize("spread", [True, False])
def test_a_list_of_people_and_facts_says_what_the_problem_says(marked, spread):
    """Decoded independently, the list is the people and the facts, and segments tell who is asked about."""
    read = inputs.Listed(ROOM, marked=marked, spread=spread)
    found, people = read(SOURCE, NUMBERS), ROOM.people
    first_relation, orders = kinship.VOCAB_SIZE + people, set()
    assert found["input_ids"].shape == (len(NUMBERS), read.length)
    for place, number in enumerate(NUMBERS):
        row, mask, problem = found["input_ids"][place], found["attention_mask"][place], SOURCE[number]
        names = row[1 : 1 + people][mask[1 : 1 + people]].tolist()
        assert (row[0], mask[0], len(names)) == (kinship.arrays.CLS, True, problem.num_people)
        tokens = row[1 + people :][mask[1 + people :]].tolist()
        facts = [tuple(tokens[at : at + 3]) for at in range(0, len(tokens), 3)]
        facts = [(names.index(x), relation - first_relation, names.index(y)) for x, relation, y in facts]
        assert sorted(facts) == sorted(map(tuple, problem.facts))
        orders.add(facts == list(map(tuple, problem.facts)))
        x, y = found["query"][place]
        assert (names[x - 1], names[y - 1]) == tuple(row[[x, y]])
        segments = np.where(np.arange(read.length) <= people, 1, 0)
        segments[[x, y]] = (2, 3) if marked else 1
        np.testing.assert_array_equal(found["token_type_ids"][place], segments)
        assert (row[~mask] == kinship.arrays.PAD).all()
        assert spread or mask[1 + people : 1 + people + len(tokens)].all()
    assert False in orders
    assert found["input_ids"].max() < read.vocab_size
    labels = kinship.pair_labels(SOURCE.draw(NUMBERS), num_people=people)
    np.testing.assert_array_equal(found["pairs"], labels)


def test_stories_are_read_as_word_pieces():
    read = inputs.Text(ROOM, 11, spread=False)
    found, tokenizer = read(SOURCE, NUMBERS), inputs.tokenizer()
    for place, number in enumerate(NUMBERS):
        story = SOURCE.story(number)
        wanted = tokenizer([story.text], [story.question], length=read.length)
        np.testing.assert_array_equal(found["input_ids"][place], wanted.input_ids[0])
        np.testing.assert_array_equal(found["attention_mask"][place], wanted.attention_mask[0])
        np.testing.assert_array_equal(found["token_type_ids"][place], wanted.token_type_ids[0])
        assert found["labels"][place] == story.problem.label
    assert not (found["input_ids"] == tokenizer.unk_id).any()


def test_published_graphs_are_no_stories(tmp_path):
    source = published(tmp_path).data.train(0)
    with pytest.raises(ValueError, match="source: got published graphs, expected generated stories"):
        inputs.Text(ROOM, 11, spread=False)(source, range(1))


def test_gaps_change_nothing_but_places():
    for kind in (inputs.Text, inputs.WrittenGraph):
        plain, spread = (kind(ROOM, 11, spread=spread)(SOURCE, NUMBERS) for spread in (False, True))
        for place in range(len(NUMBERS)):
            rows = [found["input_ids"][place][found["attention_mask"][place]] for found in (plain, spread)]
            np.testing.assert_array_equal(*rows)
        assert not np.array_equal(plain["input_ids"], spread["input_ids"])
        met = spread["attention_mask"].any(axis=0)
        assert met[1:].mean() > 0.9  # nearly every position is used by some problem


def test_there_is_room_for_the_longest_story():
    """Some template reaches the maximum length, and no problem exceeds it."""
    fact, question = inputs.longest()
    sentences = [t.format(x="Kim", y="Lee") for templates in kinship.TEMPLATES for t in templates]
    lengths = [len(ids) for ids in inputs.tokenizer().ids(sentences)]
    assert max(lengths) == fact
    assert question == 7  # how is lee related to kim ?


def test_arrays_are_the_same_for_the_same_numbers():
    for kind in (inputs.Text, inputs.WrittenGraph):
        read = kind(ROOM, 11, spread=True)
        whole, part = read(SOURCE, NUMBERS), read(SOURCE, NUMBERS[5:7])
        for name, array in part.items():
            np.testing.assert_array_equal(array, whole[name][5:7])


@pytest.mark.parametrize("form", ["graph", "text"])
def test_a_config_reads_training_and_tests_alike_where_facts_are_spread(form):
    config = with_data(form=form)
    shapes = {
        read(source, range(2))["input_ids"].shape[1]
        for source in (config.data.train(0), *(source for _, source in config.data.tests()))
        for read in [config.reader("bert", source)]
    }
    assert len(shapes) == 1
    assert shapes.pop() <= config.settings("bert").max_position_embeddings
