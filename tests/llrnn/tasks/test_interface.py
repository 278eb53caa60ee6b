"""What all tasks share: names, options, lengths, one-hot inputs, error counts, and what they refuse."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from llrnn import tasks


def test_every_task_of_the_issue_is_there():
    assert set(tasks.NAMES) == {
        "copy",
        "repeat_copy",
        *(f"pattern_{i}" for i in range(1, 6)),
        *(f"multiple_pattern_{i}" for i in range(1, 5)),
        *(f"variable_pattern_{i}" for i in range(1, 5)),
        "word_problem",
        "group_powers",
        "parity",
        "cycle_navigation",
        "reverse_string",
        "duplicate_string",
        "odds_first",
        "bucket_sort",
    }
    assert len(tasks.NAMES) == len(set(tasks.NAMES)) == 23


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


@pytest.mark.parametrize("name", ["copy", "group_powers", "bucket_sort"])
def test_one_compiled_sampler_serves_all_lengths(draw, name):
    task, traces = tasks.make(name), 0

    @jax.jit
    def sample(key, length):
        nonlocal traces
        traces += 1
        return task.sample(key, 4, length, max_length=12)

    for length in (1, 5, 12):
        batch = sample(jax.random.key(0), length)
    assert traces == 1
    assert (sample(jax.random.key(1), 12).tokens != batch.tokens).any()
    static = draw(task, 12, batch_size=4, max_length=12, static=True)
    jax.tree.map(np.testing.assert_array_equal, batch, static)


def test_length_may_be_an_array_scalar_outside_a_trace():
    task = tasks.make("parity")
    expected = task.sample(jax.random.key(0), 2, 5)
    for length in (np.int64(5), jnp.int32(5)):
        jax.tree.map(np.testing.assert_array_equal, task.sample(jax.random.key(0), 2, length), expected)


def test_variable_patterns_are_vmapped_over_keys():
    # Their rejection loop ends at a different time for every key.
    task = tasks.make("variable_pattern_4", longest_pattern=3)
    sample = functools.partial(task.sample, batch_size=3, length=6)
    keys = jax.random.split(jax.random.key(0), 4)
    many = jax.jit(jax.vmap(sample))(keys)
    one = jax.jit(sample)
    for i, key in enumerate(keys):
        jax.tree.map(lambda stack, row, i=i: np.testing.assert_array_equal(stack[i], row), many, one(key))


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
    with pytest.raises(
        ValueError, match=r"tokens must have shape \[..., 2\] for group_powers, got \(2, 2\, 1\)"
    ):
        task.encode(tokens[..., :1])


def test_errors_and_hits_count_scored_steps_only():
    rng = np.random.default_rng(0)
    logits = jnp.asarray(rng.normal(size=(5, 7, 4)), jnp.float32)
    targets, mask = rng.integers(4, size=(5, 7)), rng.random((5, 7)) < 0.6
    batch = tasks.Batch(jnp.zeros((5, 7, 1), int), jnp.asarray(targets), jnp.asarray(mask))
    wrong = right = 0
    for b in range(5):
        for t in range(7):
            if mask[b, t]:
                hit = logits[b, t, targets[b, t]] == max(logits[b, t])
                right, wrong = right + hit, wrong + (not hit)
    assert min(right, wrong) > 0
    assert [int(n) for n in tasks.error_per_symbol(logits, batch)] == [wrong, right + wrong]
    assert [int(n) for n in jax.jit(tasks.accuracy)(logits, batch)] == [right, right + wrong]
    for count in (tasks.error_per_symbol, tasks.accuracy):
        with pytest.raises(
            ValueError, match=r"logits must have shape \(5, 7\) \+ \(classes,\), got \(5, 6, 4\)"
        ):
            count(logits[:, 1:], batch)


def test_unknown_names_and_options_are_told_what_there_is():
    with pytest.raises(ValueError, match=r"name must be one of copy, .*bucket_sort; got 'nonsense'"):
        tasks.make("nonsense")
    with pytest.raises(
        ValueError, match=r"options of word_problem must be among train_lengths, .*group; got 'grupo'"
    ):
        tasks.make("word_problem", grupo="S5")
    with pytest.raises(ValueError, match="options of copy"):
        tasks.make("copy", name="other")


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("copy", {"batch_size": 0}, "batch_size must be at least 1, got 0"),
        ("copy", {"length": 0}, "length must be from 1 to max_length = 0"),
        ("copy", {"length": 6, "max_length": 5}, "length must be from 1 to max_length = 5 for copy, got 6"),
        ("copy", {"length": 5.0}, "length must be an integer, got 5.0"),
        ("copy", {"split": "held_out"}, r"split must be one of \('train',\) for copy, got 'held_out'"),
        ("group_powers", {"split": "test"}, r"split must be one of \('train', 'held_out', 'held_out_once'\)"),
        ("variable_pattern_4", {"length": 9}, "length must be from 10 to max_length = 9"),
    ],
)
def test_sample_refuses(name, arguments, message):
    with pytest.raises(ValueError, match=message):
        tasks.make(name).sample(jax.random.key(0), **{"batch_size": 2, "length": 5} | arguments)


def test_a_traced_length_needs_room_and_an_integer():
    task = tasks.make("variable_pattern_1")
    with pytest.raises(ValueError, match="max_length must be given when length is traced"):
        jax.jit(lambda n: task.sample(jax.random.key(0), 2, n))(5)
    with pytest.raises(ValueError, match="max_length must be at least 4 for variable_pattern_1, got 3"):
        jax.jit(lambda n: task.sample(jax.random.key(0), 2, n, max_length=3))(5)
    with pytest.raises(ValueError, match=r"length must be an integer scalar, got shape .* float32"):
        jax.jit(lambda n: task.sample(jax.random.key(0), 2, n, max_length=8))(5.0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"train_lengths": (5,)}, "train_lengths must be"),
        ({"train_lengths": (5, 4)}, r"train_lengths must be .* got \(5, 4\)"),
        ({"train_lengths": (0, 4)}, "train_lengths must be .* 1 <= shortest"),
        ({"test_lengths": ()}, "test_lengths must be lengths of at least 1"),
        ({"test_lengths": (3, 0)}, "test_lengths must be lengths of at least 1"),
    ],
)
def test_lengths_are_checked_when_a_task_is_made(options, message):
    with pytest.raises(ValueError, match=message):
        tasks.make("copy", **options)
