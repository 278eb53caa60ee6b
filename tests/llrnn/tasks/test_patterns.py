"""Tests the authors' tasks against f in plain Python, and against answers computed by hand."""

import itertools

import jax
import numpy as np
import pytest

from llrnn import tasks

pytestmark = pytest.mark.usefixtures("compiled_quickly")

START, END, DIVIDER = 8, 9, 7

FIXED = {
    "copy": [1],
    "repeat_copy": [0, 1],
    "pattern_1": [0, 1, 1],
    "pattern_2": [0, 2],
    "pattern_3": [0, 2, -1],
    "pattern_4": [0, 2, 1, 2, -2, -1],
    "pattern_5": [4, 1, 1, -4],
}
MULTIPLE = {
    "multiple_pattern_1": [[1], [0, 1]],
    "multiple_pattern_2": [[1], [0, 1]],
    "multiple_pattern_3": [[1], [0, 1], [0, 2]],
    "multiple_pattern_4": [[0, 1], [2, -1]],
}
STEPS = [("variable_pattern_3", (0, 1, 2)), ("variable_pattern_4", (-2, -1, 0, 1, 2))]
DRAWN = ["copy", "pattern_4", "pattern_5", "multiple_pattern_1", "multiple_pattern_2", "multiple_pattern_4"]
VARIABLE = ["variable_pattern_1", "variable_pattern_2", "variable_pattern_3", "variable_pattern_4"]


def tape_task(name, **options) -> tasks.TapeTask:
    task = tasks.make(name, **options)
    assert isinstance(task, tasks.TapeTask)
    return task


def f(seq, pattern):
    """Computes f from its definition, with Python's negative indices as in the authors' code."""
    out, i, j = [], 0, 0
    while j < len(seq):
        out.append(seq[j if j >= 0 else j % len(seq)])
        j += pattern[i % len(pattern)]
        i += 1
    return out


def answer(name, a):
    """Computes the output of a task for a content from the definition."""
    if name in FIXED:
        return f(a, FIXED[name])
    if name in MULTIPLE:
        pieces, patterns = [[]], MULTIPLE[name]
        for symbol in a:
            if symbol == DIVIDER:
                pieces.append([])
            else:
                pieces[-1].append(symbol)
        return [s for i, piece in enumerate(pieces) for s in f(piece, patterns[i % len(patterns)])]
    separator = a.index(START)
    pattern = [step - 8 if step >= 6 else step for step in a[:separator]]
    return f(a[separator + 1 :], pattern)


def check_tape(name, batch, length, size):
    """Compares every array of a batch with the answer to its content on the authors' tape."""
    assert batch.tokens.shape == (len(batch.targets), size, 1)
    assert batch.tokens.dtype == batch.targets.dtype == np.int32
    contents = [[int(s) for s in row[1 : length + 1, 0]] for row in batch.tokens]
    answers = [answer(name, a) for a in contents]
    longest = max(len(out) for out in answers)
    for row, (a, out) in enumerate(zip(contents, answers, strict=True)):
        tape = [START, *a] + [END] * (size - length - 1)
        expected = [END] * (length + 1) + out
        expected = (expected + [END] * size)[:size]
        np.testing.assert_array_equal(batch.tokens[row, :, 0], tape)
        np.testing.assert_array_equal(batch.targets[row], expected)
    scored = np.zeros(size, bool)
    scored[length + 1 : length + 1 + longest] = True
    np.testing.assert_array_equal(batch.mask, np.tile(scored, (len(contents), 1)))
    return contents, answers


def test_the_patterns_are_the_authors():
    """The tasks of a kind differ in these alone, so that not all of them need to be drawn."""
    for name, pattern in FIXED.items():
        task = tasks.make(name)
        assert isinstance(task, tasks.PatternTask)
        assert task.pattern == tuple(pattern)
    for name, patterns in MULTIPLE.items():
        task = tasks.make(name)
        assert isinstance(task, tasks.MultiplePatternTask)
        assert task.patterns == tuple(map(tuple, patterns))
        assert task.force_divider == (name == "multiple_pattern_2")


@pytest.mark.parametrize("name", [*DRAWN, *VARIABLE])
def test_every_kind_of_task_against_its_definition(draw, name):
    task = tape_task(name)
    assert (task.fields, task.num_outputs) == ((10,), 10)
    for length in sorted({task.min_length, max(5, task.min_length), 13, 18, 20}):
        _, answers = check_tape(name, draw(task, length, seed=length), length, task.steps(20))
        assert max(map(len, answers)) <= task.output_length(length)


HAND = {
    "copy": [0, 1, 2, 3, 4, 5, 6, 7],
    "pattern_4": [0, 0, 2, 3, 5, 3, 2, 2, 4, 5, 7, 5, 4, 4, 6, 7],
    "pattern_5": [0, 4, 5, 6, 2, 6, 7],
}


@pytest.mark.parametrize("name", HAND)
def test_fixed_patterns_against_places_worked_out_by_hand(draw, name):
    batch = draw(tasks.make(name), 8, seed=1)
    content, places = batch.tokens[:, 1:9, 0], HAND[name]
    np.testing.assert_array_equal(batch.targets[:, 9 : 9 + len(places)], content[:, places])
    assert batch.mask.sum() == len(places) * len(content)


def test_variable_pattern_4_wraps_before_the_beginning_as_python_does(draw_many):
    # From the authors' shortest length on, every position before the beginning is a valid Python index.
    task = tape_task("variable_pattern_4")
    length = task.train_lengths[0]
    batch = draw_many(task, length, 32)
    wrapped = 0
    for row, targets in zip(batch.tokens[:, 1 : length + 1, 0].tolist(), batch.targets.tolist(), strict=True):
        separator = row.index(START)
        string, pattern = row[separator + 1 :], [step - 8 if step >= 6 else step for step in row[:separator]]
        out, j, i = [], 0, 0
        while j < len(string):
            out.append(string[j])  # raises IndexError for an invalid index
            wrapped += j < 0
            j += pattern[i % len(pattern)]
            i += 1
        assert targets[length + 1 : length + 1 + len(out)] == out
    assert wrapped > 100


@pytest.mark.parametrize("name", [*FIXED])
def test_room_for_the_output_is_its_length(name):
    task = tape_task(name)
    for length in range(1, 30):
        assert task.output_length(length) == len(f(range(length), FIXED[name]))


@pytest.mark.parametrize("name", MULTIPLE)
def test_room_for_the_output_of_every_placing_of_dividers(name):
    task = tape_task(name)
    for length in range(1, 10):
        longest = max(len(answer(name, list(a))) for a in itertools.product([0, DIVIDER], repeat=length))
        assert longest <= task.output_length(length) == 2 * length


@pytest.mark.parametrize(
    ("name", "steps"), [*STEPS, ("variable_pattern_3", (1, 2)), ("variable_pattern_3", (2, 3, 4))]
)
def test_room_for_the_output_of_every_pattern(name, steps):
    task = tape_task(name, longest_pattern=4, step_range=(steps[0], steps[-1]))
    for length in range(task.min_length, 12):
        patterns = [p for n in range(1, 5) for p in itertools.product(steps, repeat=n) if sum(p) > 0]
        longest = max(len(f(range(length - 1 - len(p)), p)) for p in patterns)
        assert longest == task.output_length(length)


def test_listed_patterns_are_the_authors_and_equally_likely(draw_many):
    listed = {
        "variable_pattern_1": "1 2 01 02 12",
        "variable_pattern_2": "1 2 01 02 12 010 011 012 020 021 022 112 122 0001 0002 0012 0112 0102 0202",
    }
    for name, patterns in listed.items():
        patterns = patterns.split()
        batch = draw_many(tasks.make(name), 12, 250)
        texts = ["".join(map(str, row)) for row in batch.tokens[:, 1:13, 0].tolist()]
        seen = [text[: text.index("8")] for text in texts]
        counts = np.array([seen.count(p) for p in patterns])
        assert counts.sum() == 4000
        mean = 4000 / len(patterns)
        assert np.all(np.abs(counts - mean) < 5 * np.sqrt(mean))


@pytest.mark.parametrize(("name", "steps"), STEPS)
def test_random_patterns_are_uniform_among_those_that_advance(draw_many, name, steps):
    batch = draw_many(tasks.make(name), 12, 500)
    rows = batch.tokens[:, 1:13, 0].tolist()
    patterns = [tuple(s - 8 if s >= 6 else s for s in row[: row.index(START)]) for row in rows]
    assert all(sum(p) > 0 and set(p) <= set(steps) for p in patterns)
    lengths = np.bincount([len(p) for p in patterns], minlength=9)
    assert lengths[0] == 0
    assert np.all(np.abs(lengths[1:] - 1000) < 150)
    possible = [p for p in itertools.product(steps, repeat=2) if sum(p) > 0]
    counts = np.array([patterns.count(p) for p in possible])
    mean = lengths[2] / len(possible)
    assert counts.sum() == lengths[2]
    assert np.all(np.abs(counts - mean) < 5 * np.sqrt(mean))


def test_contents_are_uniform_and_a_divider_is_there_when_forced(draw_many):
    for name in ("copy", "variable_pattern_4"):  # the pattern and its end aside
        contents = draw_many(tasks.make(name), 20, 125).tokens[:, 1:21, 0][:, -11:]
        assert np.all(np.abs(np.bincount(contents.ravel(), minlength=8) - 2750) < 250)
    free = draw_many(tasks.make("multiple_pattern_1"), 6, 125).tokens[:, 1:7, 0]
    assert abs(np.mean((free == DIVIDER).any(axis=1)) - (1 - (7 / 8) ** 6)) < 0.05
    forced = draw_many(tasks.make("multiple_pattern_2"), 6, 125).tokens[:, 1:7, 0]
    assert (forced == DIVIDER).any(axis=1).all()
    # A position has the forced divider with probability 1/6, and otherwise a drawn one with 1/8.
    assert np.all(np.abs((forced == DIVIDER).mean(axis=0) - (1 / 6 + 5 / 6 / 8)) < 0.05)


def test_truncated_tapes_are_the_authors_and_cut_what_does_not_fit(draw):
    task = tape_task("variable_pattern_2", truncate=True)
    assert task.steps(20) == 22 + 2 * 20
    assert tasks.make("variable_pattern_2").steps(20) > task.steps(20)
    batch = draw(task, 18, batch_size=64, max_length=20)
    _, answers = check_tape("variable_pattern_2", batch, 18, 62)
    assert max(map(len, answers)) > 62 - 19  # at least one had to be truncated


def test_lengths_are_the_authors():
    """In the authors' counting, which includes the start and the end symbol: 7 to 30, tested at 35 .."""
    usual = ((7, 30), (35,))
    twice = ((7, 30), (35, 60))
    want = dict.fromkeys(FIXED, usual) | dict.fromkeys(MULTIPLE, twice)
    want |= {"copy": ((7, 30), (35, 100)), "repeat_copy": twice, "variable_pattern_1": ((10, 30), (35,))}
    want |= {"variable_pattern_2": ((13, 80), (100,))}
    want |= {f"variable_pattern_{k}": ((20, 80), (100,)) for k in (3, 4)}
    for name, (train, test) in want.items():
        task = tasks.make(name)
        assert tuple(n + 2 for n in task.train_lengths) == train, name
        assert tuple(n + 2 for n in task.test_lengths) == test, name


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("copy", {"pattern": ()}, r"pattern: got \(\), expected steps with a positive sum"),
        ("copy", {"pattern": (2, -2)}, r"pattern: got \(2, -2\), expected .* never ends"),
        ("multiple_pattern_1", {"patterns": ()}, r"patterns: got \(\), expected at least one"),
        ("multiple_pattern_1", {"patterns": ((1,), (0,))}, r"patterns: got \(0,\), expected steps"),
        ("variable_pattern_1", {"patterns": ()}, r"patterns: got \(\), expected at least one"),
        ("variable_pattern_3", {"step_range": (-4, 4)}, r"step_range: got \(-4, 4\), expected"),
        ("variable_pattern_3", {"step_range": (-1, 0)}, r"step_range: got \(-1, 0\), expected"),
        ("variable_pattern_3", {"step_range": (-7, 1)}, r"step_range: .* low <= high < low \+ 8"),
        ("variable_pattern_3", {"step_range": (2, 1)}, r"step_range: got \(2, 1\), expected"),
        ("variable_pattern_3", {"longest_pattern": 0}, "longest_pattern: got 0, expected at least 1"),
        ("variable_pattern_3", {"train_lengths": (9, 20)}, "train_lengths of .*: .* 10 <= shortest"),
    ],
)
def test_refuses_what_is_no_task(name, options, message):
    with pytest.raises(ValueError, match=message):
        tasks.make(name, **options)


@pytest.mark.parametrize("steps", [(-6, 1), (1, 1)])
def test_a_pattern_may_be_one_step_and_a_range_eight(steps):
    task = tape_task("variable_pattern_3", step_range=steps, longest_pattern=1)
    assert task.output_length(9) == len(f(range(7), [1]))


@pytest.mark.parametrize("name", ["copy", *VARIABLE])
def test_tokens_have_32_bits_with_64_bit_jax(name):
    """Traces the drawing: a loop whose state changed its type would be refused."""
    task = tasks.make(name)
    with jax.enable_x64(True):
        batch = jax.eval_shape(lambda key: task.sample(key, 3, task.min_length), jax.random.key(0))
    assert batch.tokens.dtype == np.int32
