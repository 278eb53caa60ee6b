"""Tests the common interface of tasks: names, options, lengths, one-hot inputs, counts and errors."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from llrnn import tasks
from tests import keys

pytestmark = pytest.mark.usefixtures("compiled_quickly")


@pytest.mark.parametrize("name", tasks.NAMES)
def test_no_key_is_used_twice(name):
    task = tasks.make(name)
    for split in task.splits:
        sample = functools.partial(task.sample, batch_size=2, length=task.train_lengths[1], split=split)
        keys.used_once(sample, jax.random.key(0))


def test_every_task_of_the_issue_is_there():
    assert set(tasks.NAMES) == {
        "copy",
        "repeat_copy",
        *(f"pattern_{i}" for i in range(1, 6)),
        *(f"multiple_pattern_{i}" for i in range(1, 5)),
        *(f"variable_pattern_{i}" for i in range(1, 5)),
        "word_problem",
        "group_powers",
        "nested_powers",
        "parity",
        "cycle_navigation",
        "reverse_string",
        "duplicate_string",
        "odds_first",
        "bucket_sort",
        "even_pairs",
        "stack_manipulation",
        "missing_duplicate_string",
        "modular_arithmetic",
        "modular_arithmetic_brackets",
        "solve_equation",
        "binary_addition",
        "binary_multiplication",
        "compute_sqrt",
    }
    assert len(tasks.NAMES) == len(set(tasks.NAMES)) == 33


@pytest.mark.parametrize("name", tasks.NAMES)
def test_tasks_are_values_with_lengths_they_can_do(name):
    task = tasks.make(name)
    assert task.name == name
    assert task == tasks.make(name)
    assert hash(task) == hash(tasks.make(name))
    shortest, longest = task.train_lengths
    assert task.min_length <= shortest < longest <= max(task.test_lengths)
    steps = [task.steps(length) for length in range(task.min_length, 41)]
    assert steps == sorted(steps)  # so that max_length has room for every shorter length
    assert tasks.make(name, test_lengths=(20,)) != task
    batch = jax.eval_shape(functools.partial(task.sample, batch_size=3, length=longest), jax.random.key(0))
    assert batch.tokens.shape == (3, task.steps(longest), len(task.fields))
    assert batch.targets.shape == batch.mask.shape == (3, task.steps(longest))
    assert (batch.tokens.dtype, batch.targets.dtype, batch.mask.dtype) == (jnp.int32, jnp.int32, jnp.bool_)


@pytest.mark.parametrize(
    ("name", "batch_size"), [("multiple_pattern_2", 16), ("group_powers", 16), ("solve_equation", 32)]
)
def test_a_traced_length_gives_what_a_static_one_gives(draw, name, batch_size):
    """With the batch sizes of other tests, so that no sampler is compiled twice."""
    task = tasks.make(name)
    traced, static = (draw(task, 9, batch_size=batch_size, static=static) for static in (False, True))
    jax.tree.map(np.testing.assert_array_equal, traced, static)


def test_length_may_be_an_array_scalar_outside_a_trace():
    task = tasks.make("parity")
    lengths = 5, np.int64(5), jnp.asarray(np.int32(5))
    expected, *others = jax.jit(lambda key: [task.sample(key, 2, n) for n in lengths])(jax.random.key(0))
    for found in others:
        jax.tree.map(np.testing.assert_array_equal, found, expected)


def test_variable_patterns_are_vmapped_over_keys():
    # Their rejection loop ends at a different time for every key.
    task = tasks.make("variable_pattern_4", longest_pattern=3)
    assert isinstance(task, tasks.RandomPatternTask)
    draw = functools.partial(task._draw_patterns, batch_size=3)
    both = jax.jit(lambda keys: (jax.vmap(draw)(keys), jax.lax.map(draw, keys)))
    many, one_by_one = both(jax.random.split(jax.random.key(0), 4))
    jax.tree.map(np.testing.assert_array_equal, many, one_by_one)


def test_encode_puts_the_fields_side_by_side():
    task = tasks.make("group_powers")
    tokens = jnp.array([[[3, 1], [0, 0]], [[7, 3], [1, 2]]])
    encoded = np.asarray(task.encode(tokens))
    assert encoded.shape == (2, 2, 12)
    assert encoded.dtype == np.float32
    expected = np.zeros((2, 2, 12))
    for row, column, places in [(0, 0, (3, 9)), (0, 1, (0, 8)), (1, 0, (7, 11)), (1, 1, (1, 10))]:
        expected[row, column, list(places)] = 1
    np.testing.assert_array_equal(encoded, expected)
    np.testing.assert_array_equal(task.encode(tokens[0, 0]), expected[0, 0])
    with jax.enable_x64(True):
        assert task.encode(tokens).dtype == np.float32
    with pytest.raises(
        ValueError, match=r"tokens: got shape \(2, 2\, 1\), expected \[\*B, 2\] for group_powers"
    ):
        task.encode(tokens[..., :1])


def test_errors_and_hits_count_scored_steps_only():
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(5, 7, 4)).astype(np.float32)
    targets, mask = rng.integers(4, size=(5, 7)), rng.random((5, 7)) < 0.6
    batch = tasks.Batch(*map(jnp.asarray, (np.zeros((5, 7, 1), int), targets, mask)))
    wrong = right = 0
    for b in range(5):
        for t in range(7):
            if mask[b, t]:
                hit = logits[b, t, targets[b, t]] == max(logits[b, t])
                right, wrong = right + hit, wrong + (not hit)
    assert min(right, wrong) > 0
    logits = jnp.asarray(logits)
    both = jax.jit(lambda *given: (tasks.error_per_symbol(*given), tasks.accuracy(*given)))
    assert jax.device_get(both(logits, batch)) == ((wrong, right + wrong), (right, right + wrong))
    for count in (tasks.error_per_symbol, tasks.accuracy):
        with pytest.raises(
            ValueError, match=r"logits: got shape \(5, 6, 4\), expected \[B, T, C\] with \[B, T\] = \[5, 7\]"
        ):
            count(logits[:, 1:], batch)


def test_unknown_names_and_options_are_answered_with_the_known_ones():
    with pytest.raises(ValueError, match=r"name: got 'nonsense', expected one of 'copy', .*'bucket_sort'"):
        tasks.make("nonsense")
    with pytest.raises(
        ValueError, match=r"options of word_problem: got 'grupo', expected one of 'train_lengths', .*'group'"
    ):
        tasks.make("word_problem", grupo="S5")
    with pytest.raises(ValueError, match="options of copy"):
        tasks.make("copy", name="other")


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("copy", {"batch_size": 0}, "batch_size: got 0, expected at least 1"),
        ("copy", {"length": 0}, "length of copy: got 0, expected 1 to max_length = 0"),
        ("copy", {"length": 6, "max_length": 5}, "length of copy: got 6, expected 1 to max_length = 5"),
        ("copy", {"length": 5.0}, "length: got 5.0, expected an integer"),
        ("copy", {"split": "held_out"}, "split of copy: got 'held_out', expected one of 'train'"),
        (
            "group_powers",
            {"split": "test"},
            "got 'test', expected one of 'train', 'held_out', 'held_out_once'",
        ),
        ("variable_pattern_4", {"length": 9}, "got 9, expected 10 to max_length = 9"),
    ],
)
def test_sample_refuses(name, arguments, message):
    with pytest.raises(ValueError, match=message):
        tasks.make(name).sample(jax.random.key(0), **{"batch_size": 2, "length": 5} | arguments)


def test_a_traced_length_needs_room_and_an_integer():
    task = tasks.make("variable_pattern_1")
    with pytest.raises(ValueError, match="max_length: got None, expected an integer, since length is traced"):
        jax.jit(lambda n: task.sample(jax.random.key(0), 2, n))(5)
    with pytest.raises(ValueError, match="max_length of variable_pattern_1: got 3, expected at least 4"):
        jax.jit(lambda n: task.sample(jax.random.key(0), 2, n, max_length=3))(5)
    with pytest.raises(ValueError, match=r"length: got shape .* float32, expected an integer scalar"):
        jax.jit(lambda n: task.sample(jax.random.key(0), 2, n, max_length=8))(5.0)
    batch = jax.eval_shape(lambda n: task.sample(jax.random.key(0), 2, n, max_length=4), 4)
    assert batch.mask.shape == (2, task.steps(4))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"train_lengths": (5,)}, r"train_lengths of copy: got \(5,\), expected \(shortest, longest\)"),
        ({"train_lengths": (5, 4)}, r"train_lengths of copy: got \(5, 4\), expected"),
        ({"train_lengths": (0, 4)}, "train_lengths of copy: .* 1 <= shortest"),
        ({"test_lengths": ()}, r"test_lengths of copy: got \(\), expected one or more lengths of at least 1"),
        ({"test_lengths": (3, 0)}, r"test_lengths of copy: got \(3, 0\), expected"),
    ],
)
def test_lengths_are_checked_when_a_task_is_made(options, message):
    with pytest.raises(ValueError, match=message):
        tasks.make("copy", **options)


def test_one_length_may_be_all_there_is():
    task = tasks.make("copy", train_lengths=(1, 1), test_lengths=(1,))
    assert (task.train_lengths, task.test_lengths) == ((1, 1), (1,))


@pytest.mark.parametrize("name", tasks.NAMES)
def test_batches_have_32_bits_where_64_are_usual(name):
    task = tasks.make(name)
    for split in task.splits:
        sample = functools.partial(task.sample, batch_size=3, length=task.train_lengths[1], split=split)
        with jax.enable_x64(True):
            batch = jax.eval_shape(sample, jax.random.key(0))
        dtypes = batch.tokens.dtype, batch.targets.dtype, batch.mask.dtype
        assert dtypes == (jnp.int32, jnp.int32, jnp.bool_)


@pytest.mark.unchecked  # these are not of the declared type
@pytest.mark.parametrize(
    ("name", "option", "given", "stored"),
    [
        ("copy", "test_lengths", [5, 6], (5, 6)),
        ("variable_pattern_1", "patterns", [[1], [0, 1]], ((1,), (0, 1))),
    ],
)
def test_a_list_becomes_a_tuple_which_has_a_hash(name, option, given, stored):
    task = tasks.make(name, **{option: given})
    assert getattr(task, option) == stored
    assert hash(task) == hash(tasks.make(name, **{option: stored}))


@pytest.mark.parametrize("name", tasks.NAMES)
def test_every_task_checks_what_all_have(name):
    for options in ({"train_lengths": (5, 4)}, {"test_lengths": ()}, {"computation": -1}, {"alphabet": 1}):
        if set(options) <= {field.name for field in dataclasses.fields(tasks.make(name))}:
            with pytest.raises(ValueError, match=rf"{next(iter(options))}\b.*: got .*, expected"):
                tasks.make(name, **options)
