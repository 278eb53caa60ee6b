"""Tests groups against axioms and known counts, and group tasks against moving points step by step."""

import collections
import itertools

import jax
import numpy as np
import pytest

from llrnn import tasks

pytestmark = pytest.mark.usefixtures("compiled_quickly")

ORDERS = {  # number of elements of each order
    "S3": {1: 1, 2: 3, 3: 2},
    "S4": {1: 1, 2: 9, 3: 8, 4: 6},
    "S5": {1: 1, 2: 25, 3: 20, 4: 30, 5: 24, 6: 20},
    "A4": {1: 1, 2: 3, 3: 8},
    "A5": {1: 1, 2: 15, 3: 20, 5: 24},
    "Z7": {1: 1, 7: 6},
    "Z12": {1: 1, 2: 1, 3: 2, 4: 2, 6: 2, 12: 4},
    "D3": {1: 1, 2: 3, 3: 2},
    "D4": {1: 1, 2: 5, 4: 2},
    "D5": {1: 1, 2: 5, 5: 4},
}


def powers_task(**options) -> tasks.GroupPowers:
    task = tasks.make("group_powers", **options)
    assert isinstance(task, tasks.GroupPowers)
    return task


def compose(a, b):
    """Composes permutations: first b, then a."""
    return tuple(a[i] for i in b)


def test_the_held_out_pair_is_not_drawn_with_the_key_of_the_others():
    """Equal keys would draw the same bits: places in the lists of 6 and of 10 pairs would be odd together."""
    task = powers_task(powers=4, operators=4, held_out=6)
    sample = jax.jit(lambda key: task.sample(key, 64, 8, split="held_out_once"))
    batch = jax.device_get(sample(jax.random.key(0)))
    pairs = np.asarray(batch.tokens @ np.array([4, 1]))
    unseen = [4 * k + g for k, g in task.held_out_pairs]
    trained = [pair for pair in range(16) if pair not in unseen]
    mask = np.asarray(batch.mask)
    drawn = np.array([unseen.index(pair) for pair in pairs[mask]])
    places = np.unravel_index(np.arange(64), mask.shape)  # as a key of its own would fill another shape
    known = ~mask[places]
    others = np.array([trained.index(pair) for pair in pairs[places][known]])
    assert 0.2 < np.mean(drawn[known] % 2 == others % 2) < 0.8


@pytest.mark.parametrize("name", ORDERS)
def test_group_axioms_and_element_orders(name):
    group = tasks.group(name)
    table, every = group.table, np.arange(group.order)
    assert len({tuple(p) for p in group.permutations.tolist()}) == group.order
    for axis in (0, 1):  # closed, with inverses: every row and column has each element once
        np.testing.assert_array_equal(
            np.sort(table, axis=axis), np.moveaxis(np.tile(every, (group.order, 1)), -1, axis)
        )
    np.testing.assert_array_equal(table[0], every)
    np.testing.assert_array_equal(table[:, 0], every)
    a, b, c = np.random.default_rng(0).integers(group.order, size=(3, 2000))
    np.testing.assert_array_equal(table[table[a, b], c], table[a, table[b, c]])
    assert collections.Counter(group.element_orders().tolist()) == ORDERS[name]
    assert (table == table.T).all() == (name[0] == "Z")


def test_the_table_composes_permutations():
    group = tasks.group("S5")
    permutations = [tuple(p) for p in group.permutations.tolist()]
    for a, b in np.random.default_rng(1).integers(group.order, size=(500, 2)):
        assert permutations[group.table[a, b]] == compose(permutations[a], permutations[b])
    for a in range(0, 120, 7):
        expected = permutations[0]
        for exponent in range(9):
            assert permutations[group.power(a, exponent)] == expected
            expected = compose(permutations[a], expected)


def test_alternating_group_is_the_commutator_subgroup():
    symmetric, alternating = tasks.group("S5"), tasks.group("A5")
    inverse = np.argmin(symmetric.table, axis=1)
    a, b = (x.ravel() for x in np.indices((120, 120)))
    commutators = symmetric.table[symmetric.table[a, b], symmetric.table[inverse[a], inverse[b]]]
    found = {tuple(p) for p in symmetric.permutations[np.unique(commutators)].tolist()}
    assert found == {tuple(p) for p in alternating.permutations.tolist()}  # in S5 each is itself a commutator


@pytest.mark.parametrize("name", ["A5", "D4"])
def test_word_problem_moves_points(draw, name):
    task = tasks.make("word_problem", group=name)
    order = sum(ORDERS[name].values())
    assert (task.fields, task.num_outputs, task.steps(9)) == ((order,), order, 9)
    permutations = [tuple(p) for p in tasks.group(name).permutations.tolist()]
    for length in (1, 9, 20):
        batch = draw(task, length)
        assert batch.tokens.shape == (16, 20, 1)
        np.testing.assert_array_equal(batch.mask, np.tile(np.arange(20) < length, (16, 1)))
        for word, targets in zip(batch.tokens[..., 0].tolist(), batch.targets.tolist(), strict=True):
            points = tuple(range(len(permutations[0])))
            for element, target in zip(word, targets, strict=True):
                points = tuple(permutations[element][point] for point in points)
                assert points == permutations[target]


def test_word_problem_tokens_and_targets_are_uniform(draw_many):
    batch = draw_many(tasks.make("word_problem", group="A5"), 20, 19)
    for values in (batch.tokens, batch.targets):
        assert np.all(np.abs(np.bincount(values.ravel(), minlength=60) - 101) < 55)


def generated_order(permutations):
    """Returns the order of the group that permutations generate, by closing a set of tuples."""
    identity = tuple(range(len(permutations[0])))
    found, new = {identity}, [identity]
    while new:
        new = list({compose(p, q) for p in permutations for q in new} - found)
        found.update(new)
    return len(found)


@pytest.mark.parametrize(("powers", "operators"), [(8, 4), (4, 8)])
def test_held_out_pairs_leave_everything_trained(powers, operators):
    chosen = set()
    for seed in range(12):
        task = powers_task(powers=powers, operators=operators, seed=seed)
        pairs = {(k, g) for k in range(powers) for g in range(operators)}
        held_out = set(task.held_out_pairs)
        trained = pairs - held_out
        assert len(held_out) == 8
        assert held_out <= pairs
        assert {(1, g) for g in range(operators)} <= trained
        assert min(sum(k == row for k, _ in trained) for row in range(powers)) >= 2
        per_operator = [sum(g == column for _, g in trained) for column in range(operators)]
        assert min(per_operator) >= 2
        assert max(per_operator) - min(per_operator) <= 1  # evenly spread
        per_power = [sum(k == row for k, _ in trained) for row in range(powers) if row != 1]
        assert max(per_power) - min(per_power) <= 1
        assert len(set(task.operator_elements)) == operators
        assert (
            generated_order([tuple(task.elements.permutations[g].tolist()) for g in task.operator_elements])
            == 120
        )
        chosen.add((task.held_out_pairs, task.operator_elements))
    assert len(chosen) == 12  # different seeds choose different pairs


def test_group_powers_applies_the_operator_k_times(draw):
    task = powers_task()
    permutations = [tuple(p) for p in tasks.group(task.group).permutations.tolist()]
    operators = [permutations[g] for g in task.operator_elements]
    assert task.fields == (task.powers, task.operators)
    assert task.num_outputs == len(permutations)
    for split in task.splits:
        batch = draw(task, 13, split=split)
        assert batch.tokens.shape == (16, 20, 2)
        for word, targets in zip(batch.tokens.tolist(), batch.targets.tolist(), strict=True):
            points = tuple(range(5))
            for (k, g), target in zip(word, targets, strict=True):
                for _ in range(k):
                    points = tuple(operators[g][point] for point in points)
                assert points == permutations[target]


def test_splits_draw_and_score_the_pairs_they_should(draw_many):
    task = powers_task()
    held_out = np.zeros((8, 4), bool)
    for k, g in task.held_out_pairs:
        held_out[k, g] = True
    for length in (7, 20):
        inside = np.arange(20) < length
        train = draw_many(task, length, 25)
        seen = np.zeros((8, 4), int)
        np.add.at(seen, (train.tokens[..., 0], train.tokens[..., 1]), 1)
        assert not seen[held_out].any()
        assert np.all(np.abs(seen[~held_out] - 8000 / 24) < 100)
        np.testing.assert_array_equal(train.mask, np.tile(inside, (400, 1)))

        test = draw_many(task, length, 25, split="held_out")
        seen = np.zeros((8, 4), int)
        np.add.at(seen, (test.tokens[..., 0], test.tokens[..., 1]), 1)
        assert np.all(np.abs(seen - 8000 / 32) < 90)
        unseen_pair = held_out[test.tokens[..., 0], test.tokens[..., 1]]
        np.testing.assert_array_equal(test.mask, unseen_pair & inside)

        once = draw_many(task, length, 25, split="held_out_once")
        unseen_pair = held_out[once.tokens[..., 0], once.tokens[..., 1]]
        np.testing.assert_array_equal(once.mask, unseen_pair)
        np.testing.assert_array_equal(once.mask.sum(axis=1), 1)
        assert not (once.mask & ~inside).any()
        assert set(np.flatnonzero(once.mask.any(axis=0))) == set(range(length))
        scored = {tuple(pair) for pair in once.tokens[np.asarray(once.mask)].tolist()}
        assert scored == set(task.held_out_pairs)


def test_effects_are_powers():
    task = powers_task()
    permutations = task.elements.permutations
    for column, element in enumerate(task.operator_elements):
        expected = np.arange(5)
        for k in range(8):
            np.testing.assert_array_equal(permutations[task.effects()[k, column]], expected)
            expected = permutations[element][expected]


def nested_task(**options) -> tasks.NestedPowers:
    task = tasks.make("nested_powers", **options)
    assert isinstance(task, tasks.NestedPowers)
    return task


def test_nested_powers_are_nested_loops(draw):
    task = nested_task(powers=3, operators=5, group="A5", held_out=30, seed=2)
    permutations = [tuple(p) for p in tasks.group(task.group).permutations.tolist()]
    operators = [permutations[g] for g in task.operator_elements]
    assert len(set(operators)) == 2 * task.operators
    assert task.fields == (task.powers, task.powers, task.operators, task.operators)
    for split in task.splits:
        batch = draw(task, 13, split=split)
        assert batch.tokens.shape == (16, 20, 4)
        held_out = np.array([[tuple(step) in set(task.held_out_steps) for step in w] for w in batch.tokens])
        inside = np.arange(20) < 13
        if split == "train":
            assert not held_out.any()
        np.testing.assert_array_equal(
            batch.mask, np.broadcast_to(inside if split == "train" else held_out & inside, held_out.shape)
        )
        for word, targets in zip(batch.tokens.tolist(), batch.targets.tolist(), strict=True):
            points = tuple(range(5))
            for (m, n, a, b), target in zip(word, targets, strict=True):
                for _ in range(n):
                    for operator in [operators[a]] * m + [operators[task.operators + b]]:
                        points = tuple(operator[point] for point in points)
                assert points == permutations[target]


def test_held_out_steps_leave_every_pair_of_values_trained():
    task = nested_task(powers=3, operators=4, held_out=40)
    held_out = set(task.held_out_steps)
    assert len(held_out) == len(task.held_out_steps) == 40
    assert list(task.held_out_steps) == sorted(held_out)
    assert all(m and n for m, n, _, _ in held_out)  # with 0, the program does not depend on all operators
    trained = set(itertools.product(range(3), range(3), range(4), range(4))) - held_out
    for first, second in itertools.combinations(range(4), 2):
        seen = {(step[first], step[second]) for step in trained}
        assert len(seen) == task.fields[first] * task.fields[second]
    assert nested_task(powers=3, operators=4, held_out=40, seed=1).held_out_steps != task.held_out_steps


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"operators": 60}, "operators: got 60, expected 1 to 59 for S5"),
        ({"held_out": 577}, "held_out: got 577, expected at most 576, and few enough that"),
        ({"held_out": 576}, "held_out: got 576, expected at most 576, and few enough that"),
    ],
)
def test_refuses_nested_powers_that_cannot_be(options, message):
    with pytest.raises(ValueError, match=message):
        nested_task(**options)


def test_the_powers_that_numbers_ask_for():
    """Of g for k, of a for m, and of b a^m for n: what the effect is for a number of 1."""
    task = powers_task()
    np.testing.assert_array_equal(task.powers_of, task.effects()[1:2])
    nested = nested_task(powers=3, held_out=64)
    of_m, of_n = nested.powers_of
    np.testing.assert_array_equal(of_m, nested.operator_elements[:8])
    np.testing.assert_array_equal(of_n, nested.effects()[:, 1].ravel())


def test_the_group_may_have_no_elements_of_order_three():
    task = powers_task(group="S2", operators=1, held_out=0)
    assert task.operator_elements == (1,)
    assert task.splits == ("train",)
    assert task.held_out_pairs == ()


@pytest.mark.parametrize(("name", "operators"), [("D5", 4), ("D3", 2), ("S3", 2)])
def test_operators_generate_a_group_whose_elements_of_order_above_two_do_not(name, operators):
    """These are the rotations alone."""
    task = powers_task(group=name, operators=operators, held_out=0)
    permutations = [tuple(task.elements.permutations[g].tolist()) for g in task.operator_elements]
    assert len(set(permutations)) == operators
    assert generated_order(permutations) == task.elements.order
    assert len(nested_task(group="D12", operators=4, held_out=4).operator_elements) == 8


def test_operators_have_orders_above_two_if_just_enough_do():
    task = powers_task(group="A4", operators=8, held_out=0)
    assert set(task.elements.element_orders()[list(task.operator_elements)]) == {3}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"group": "M11"}, "group: got 'M11', expected S, A, Z or D and a number, such as"),
        ({"group": 5}, "group: got 5, expected S, A, Z or D"),
        ({"group": "S7"}, "group: got 'S7', expected at most 1000 elements"),
        ({"group": "Z1001"}, "group: got 'Z1001', expected at most 1000 elements"),
        ({"group": "A2"}, "group: got 'A2', expected at least 2 elements"),
        ({"group": "D2"}, "at least 3 points for D"),
        ({"powers": 1}, "powers: got 1, expected at least 2"),
        ({"operators": 0}, "operators: got 0, expected 1 to 119 for S5"),
        ({"operators": 120}, "operators: got 120, expected 1 to 119 for S5"),
        ({"operators": 1, "held_out": 0}, "operators: got 1, expected enough to generate S5"),
        ({"held_out": -1}, "held_out: got -1, expected at least 0"),
        ({"held_out": 15}, "held_out: got 15, expected at most 14"),
    ],
)
def test_refuses_what_cannot_be(options, message):
    with pytest.raises(ValueError, match=message):
        powers_task(**options)


@pytest.mark.parametrize(("powers", "operators", "most"), [(8, 4, 14), (3, 8, 8), (2, 4, 0)])
def test_as_many_as_possible_can_be_held_out_and_no_more(powers, operators, most):
    # Of 8 powers the 7 other than 1 may each lose 2 of 4 operators; of 3 powers each operator may lose 1.
    task = powers_task(powers=powers, operators=operators, held_out=most)
    assert len(set(task.held_out_pairs)) == most
    with pytest.raises(ValueError, match=f"held_out: got {most + 1}, expected at most {most}, so"):
        powers_task(powers=powers, operators=operators, held_out=most + 1)
