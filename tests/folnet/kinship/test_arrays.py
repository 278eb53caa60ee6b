"""Kinship problems as arrays: they encode the problems, and models accept them."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from folnet import FOLNet, FOLNetConfig, check_inputs, kinship
from folnet.kinship.arrays import (
    CLS,
    FIRST,
    PAD,
    PERSON,
    QUERY,
    RELATION_VOCAB_SIZE,
    SECOND,
    UNRELATED,
    VOCAB_SIZE,
    distances,
    pair_labels,
    symbols,
)

SOURCE = kinship.Kinship(seed=2, lengths=(2, 3, 5), irrelevant=1)
PROBLEMS = SOURCE.draw(range(40))
ARRAYS = symbols(PROBLEMS, num_people=9)


def test_problems_can_be_read_back():
    """Facts, question, people and class are recovered from the arrays alone."""
    assert ARRAYS.input_ids.shape == (40, 10)
    for row, problem in enumerate(PROBLEMS):
        pairs = np.argwhere(ARRAYS.relation_ids[row] >= 0)
        facts = {(x - 1, int(ARRAYS.relation_ids[row, x, y]), y - 1) for x, y in pairs.tolist()}
        question = {fact for fact in facts if fact[1] == QUERY}
        assert facts - question == set(problem.facts)
        assert question == {(problem.query[0], QUERY, problem.query[1])}
        kinds = ARRAYS.input_ids[row].tolist()
        assert kinds[0] == CLS
        assert (kinds.index(FIRST) - 1, kinds.index(SECOND) - 1) == problem.query
        assert tuple(ARRAYS.query[row] - 1) == problem.query
        assert kinds.count(PERSON) == problem.num_people - 2
        assert kinds[problem.num_people + 1 :] == [PAD] * (9 - problem.num_people)
        assert np.array_equal(ARRAYS.attention_mask[row], ARRAYS.input_ids[row] != PAD)
        assert kinship.TARGET_NAMES[ARRAYS.labels[row]] == problem.answer_name
        assert ARRAYS.lengths[row] == problem.length


def test_room_is_made_for_the_largest():
    assert symbols(PROBLEMS).input_ids.shape[1] == 1 + max(problem.num_people for problem in PROBLEMS)
    assert symbols(PROBLEMS[:1], num_people=30).relation_ids.shape == (1, 31, 31)


def test_an_unmarked_question_is_in_query_alone():
    plain = symbols(PROBLEMS, num_people=9, marked=False)
    np.testing.assert_array_equal(plain.input_ids == PERSON, ARRAYS.input_ids >= PERSON)
    np.testing.assert_array_equal(
        plain.relation_ids, np.where(ARRAYS.relation_ids == QUERY, -1, ARRAYS.relation_ids)
    )
    np.testing.assert_array_equal(plain.query, ARRAYS.query)


def test_labels_of_pairs_are_what_follows():
    """Every label against `deduce`; -1 where more than one relation follows, and outside the people."""
    labels = pair_labels(PROBLEMS, num_people=9)
    for row, problem in enumerate(PROBLEMS):
        deduction, size = kinship.deduce(problem.facts), problem.num_people
        assert (labels[row, 0] == -1).all()
        assert (labels[row, :, 0] == -1).all()
        assert (labels[row, 1 + size :] == -1).all()
        assert (labels[row, :, 1 + size :] == -1).all()
        for x in range(size):
            for y in range(size):
                found = deduction.between(x, y)
                want = -1 if x == y or len(found) > 1 else found[0] if found else UNRELATED
                assert labels[row, 1 + x, 1 + y] == want
        assert labels[row, 1 + problem.query[0], 1 + problem.query[1]] == problem.answer


def test_labels_within_a_distance_leave_out_longer_chains_alone():
    every = pair_labels(PROBLEMS, num_people=9)
    near = pair_labels(PROBLEMS, num_people=9, within=2)
    left_out = 0
    for row, problem in enumerate(PROBLEMS):
        apart = distances(problem.facts, problem.num_people)
        people = slice(1, 1 + problem.num_people)
        far = (apart > 2) & (apart <= problem.num_people)
        np.testing.assert_array_equal(
            near[row, people, people], np.where(far, -1, every[row, people, people])
        )
        left_out += far.sum()
    assert left_out > 100


def test_labels_follow_by_the_given_rules():
    """Without rules only facts have relations; with one more, what it says follows, too."""
    facts = (kinship.Fact(0, 0, 1), kinship.Fact(1, 2, 2))  # a son, then a father: a brother is no rule's
    problem = dataclasses.replace(PROBLEMS[0], num_people=3, facts=facts)
    for rules, want in (({}, UNRELATED), ({(0, 2): 6}, 6)):
        labels = pair_labels([problem], num_people=3, rules=rules)
        assert labels[0, 1:, 1:].tolist() == [
            [-1, 0, want],
            [UNRELATED, -1, 2],
            [UNRELATED, UNRELATED, -1],
        ]


def test_people_are_not_their_own_relatives():
    """With `selves` this is a label; nothing else differs."""
    plain, selves = (pair_labels(PROBLEMS, num_people=9, selves=chosen) for chosen in (False, True))
    for row, problem in enumerate(PROBLEMS):
        people = np.arange(1, 1 + problem.num_people)
        assert (selves[row, people, people] == UNRELATED).all()
        selves[row, people, people] = -1
    np.testing.assert_array_equal(selves, plain)


def test_distances_are_those_of_the_shortest_connection():
    facts = [kinship.Fact(0, 0, 1), kinship.Fact(2, 0, 1), kinship.Fact(2, 0, 3)]
    want = [[0, 1, 2, 3, 6], [1, 0, 1, 2, 6], [2, 1, 0, 1, 6], [3, 2, 1, 0, 6], [6, 6, 6, 6, 0]]
    np.testing.assert_array_equal(distances(facts, 5), want)


def test_what_does_not_fit_is_named():
    """The error names the index of the problem."""
    place = next(i for i, problem in enumerate(PROBLEMS) if problem.num_people > 4)
    with pytest.raises(ValueError, match=rf"num_people: got 4, expected at least \d \(problems\[{place}\]\)"):
        symbols(PROBLEMS, num_people=4)
    with pytest.raises(ValueError, match=rf"num_people: got 4, expected at least \d \(problems\[{place}\]\)"):
        pair_labels(PROBLEMS, num_people=4)
    with pytest.raises(ValueError, match="problems: got none"):
        symbols([])


def test_the_model_takes_them():
    """Ids and binary base atoms are in the model's range."""
    config = FOLNetConfig(
        vocab_size=VOCAB_SIZE,
        relation_vocab_size=RELATION_VOCAB_SIZE,
        hidden_size=8,
        relation_size=4,
        num_hidden_layers=1,
        num_attention_heads=2,
        head_size=4,
        intermediate_size=8,
        relation_intermediate_size=8,
        relative_position="none",
        absolute_position=False,
    )
    check_inputs(config, ARRAYS.input_ids, relation_ids=ARRAYS.relation_ids)
    model = FOLNet(config)

    def run(key):
        arrays = [jnp.asarray(array) for array in (ARRAYS.input_ids, ARRAYS.attention_mask)]
        return model.init_with_output(
            key, arrays[0], None, arrays[1], relation_ids=jnp.asarray(ARRAYS.relation_ids)
        )[0]

    output = jax.eval_shape(run, jax.random.key(0))
    assert output.pooler_output.shape == (40, 8)
    assert output.relation_hidden_state.shape == (40, 10, 10, 4)
