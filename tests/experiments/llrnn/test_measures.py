"""Measures of recurrent models: of one that solves its task, of one that errs as known, and of constants."""

import dataclasses
import functools
import math
from typing import Any

import jax
import numpy as np
import pytest

from experiments.llrnn import load, measures
from experiments.llrnn.config import get_config
from experiments.llrnn.parts import CellConfig, TaskOptions
from llrnn import model as models
from llrnn import tasks
from llrnn.cells.coupling import COORDINATES
from tests.experiments.llrnn import solved
from tests.experiments.llrnn.small import short

pytestmark = pytest.mark.usefixtures("compiled_quickly")


@pytest.fixture(scope="module")
def evaluation():
    """The evaluation of 12 sequences per length and split, compiled once."""
    task = solved.make_task()
    return measures.make_evaluation(task, solved.CONFIG.make_model(task), 12)


@pytest.fixture(scope="module")
def drawn():
    """The sequences of one split that every run is evaluated on, by length; they are drawn in one program."""
    task, lengths = solved.make_task(), (2, 3, 5)

    def at(length):
        key = jax.random.fold_in(jax.random.key(2**31 - 1), length)
        return task.sample(key, 12, length, max_length=5, split="held_out")

    batches = jax.device_get(jax.jit(lambda lengths: jax.lax.map(at, lengths))(np.array(lengths)))
    return {n: jax.tree.map(lambda leaf, k=k: leaf[k], batches) for k, n in enumerate(lengths)}


def test_a_model_that_computes_the_product_makes_no_error(evaluation, drawn):
    """Also on held-out pairs, at the longest training length, and at every test length."""
    found = evaluation(solved.params())
    names = {f"{split}/error_{n}" for split in ("train", "held_out", "held_out_once") for n in (2, 3, 5)}
    assert set(found) == names
    for name, counts in found.items():
        split, length = name.split("/error_")
        assert counts["wrong"] == counts["sequences_wrong"] == 0
        if split == "held_out":  # only the held-out pairs among all count
            mask = drawn[int(length)].mask
            assert 0 < mask.sum() < 12 * int(length)
            assert (counts["symbols"], counts["sequences"]) == (mask.sum(), mask.any(axis=1).sum())
        else:
            assert counts["symbols"] == 12 * (int(length) if split == "train" else 1)
            assert counts["sequences"] == 12


def test_errors_are_counted_by_symbol_and_by_sequence(evaluation, drawn):
    """A model that takes the element 1 for the element 2 errs where 1 is the answer, and nowhere else."""
    partly = 0
    found = evaluation(solved.params(confused=(1,)))
    for length, batch in drawn.items():
        counts = found[f"held_out/error_{length}"]
        wrong = batch.mask & (solved.products(batch.tokens) == 1)
        assert (counts["wrong"], counts["sequences_wrong"]) == (wrong.sum(), wrong.any(axis=1).sum())
        partly += 0 < counts["sequences_wrong"] < min(counts["wrong"], counts["sequences"])
    assert partly > 0


@pytest.mark.parametrize(
    ("task", "cell"),
    [
        ("odds_first", CellConfig.of("second_order", features=3)),
        ("repeat_copy", CellConfig.of("second_order", features=3)),
        ("odds_first", CellConfig.of("tape_rnn", features=8, memory_size=1, memory_width=4)),
    ],
)
def test_lengths_are_padded_to_their_bucket_only_and_counted_as_if_to_the_longest(task, cell):
    """Errors of an untrained cell over the whole answer, of the lengths 2, 3, 4, 5 and 7; buckets of 4."""
    options = TaskOptions(train_lengths=(1, 3), test_lengths=(2, 4, 5, 7))
    config = short(task=task, task_options=options, cell=cell)
    made = config.make_task()
    model = config.make_model(made)
    inputs = jax.ShapeDtypeStruct((1, 2, sum(made.fields)), "float32")
    shapes = jax.eval_shape(model.init, jax.random.key(0), inputs)["params"]
    rng = np.random.default_rng(0)
    params = jax.tree.map(lambda leaf: np.float32(rng.normal(size=leaf.shape)), shapes)
    seen, predict = [], measures.predict

    def recorded(model, params, inputs):
        seen.append(inputs.shape[1])
        return predict(model, params, inputs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(measures, "predict", recorded)
        together = measures.make_evaluation(made, model, 9)(params)  # all are in the bucket up to 64
        patch.setattr(measures, "_SHARED", 4)
        found = measures.make_evaluation(made, model, 9)(params)
    assert seen == [made.steps(7), made.steps(4), made.steps(7)]
    assert found == together
    assert sorted(int(name.split("_")[-1]) for name in found) == [2, 3, 4, 5, 7]
    assert all(0 < counts["wrong"] < counts["symbols"] for counts in found.values())


def test_an_opened_model_reads_the_tokens_in_their_order():
    """The function that is exported gives, at every step, the product of the tokens until then."""
    opened = load.of_recurrent(solved.CONFIG, solved.params(), 7)
    tokens = np.random.default_rng(0).integers((4, 3), size=(5, 6, 2)).astype(np.int32)
    logits = jax.jit(opened.function)(opened.params, {"tokens": tokens})["logits"]
    assert logits.shape == (5, 6, 6)
    np.testing.assert_array_equal(np.argmax(logits, axis=-1), solved.products(tokens))
    reversed_in_time = solved.products(tokens[:, ::-1])
    assert (np.argmax(logits, axis=-1) != reversed_in_time).any()
    assert (opened.kind, set(opened.inputs), set(opened.outputs)) == ("recurrent", {"tokens"}, {"logits"})
    assert opened.inputs["tokens"].shape[2:] == (2,)
    assert opened.inputs["tokens"].range == (0, 3)  # the largest value of any field
    assert opened.outputs["logits"].shape[2:] == (6,)


def test_the_lengths_of_operators_are_compared_with_those_of_orthogonal_ones():
    """Those of all features and, of a proof's cell, of all inputs that are maps; permutations are at 0."""
    task = solved.make_task()
    params = solved.params()
    assert measures.operator_lengths(solved.CONFIG.make_model(task), params) == 0
    params["cell"]["operators"][1] *= 2
    assert measures.operator_lengths(solved.CONFIG.make_model(task), params) == pytest.approx(9 / 3)
    cell = CellConfig.of(
        "proof",
        features=2,
        proof=r"\!m:!int. \!x:!E. \!y:!E. \z:H. y (m !x z)",
        inputs=("m: given numerals 3", "x: input", "y: input"),
        inside=(),
    )
    model = dataclasses.replace(solved.CONFIG, cell=cell).make_model(task)
    kernels = {
        "x": {"kernel": np.array([[1, 0, 0, 1], [2, 0, 0, 0]], np.float32)},
        "y": {"kernel": np.array([[0, 0, 0, 0], [0, 1, 1, 2]], np.float32)},
    }
    assert measures.operator_lengths(model, {"cell": kernels}) == pytest.approx((0 + 1 + 1 + 4) / 4)


def test_permutations_are_orthogonal_and_what_stretches_or_shears_is_not():
    """By singular values s: |V^T V - 1|^2 is the sum of (s^2 - 1)^2; one operator among three is changed."""
    model, params = solved.CONFIG.make_model(solved.make_task()), solved.params()
    assert measures.orthogonality(model, params) == 0
    kept = params["cell"]["operators"][1].copy()
    shear = np.eye(6, dtype=np.float32)
    shear[0, 1] = 0.5
    for changed in (2 * kept, kept @ shear):
        params["cell"]["operators"][1] = changed
        squares = np.linalg.svd(changed, compute_uv=False) ** 2
        expected = ((squares - 1) ** 2).sum() / len(squares) / 3
        assert measures.orthogonality(model, params) == pytest.approx(expected, rel=1e-5)
        assert expected > 0.01


def test_an_affine_change_of_operators_and_programs_leaves_the_powers_but_not_the_lengths():
    """For a = .6; the coordinates of the numeral k are then binomial."""
    a, features = 0.6, 5
    operator = np.eye(features)[np.random.default_rng(0).permutation(features)]
    changed = (operator - (1 - a) * np.eye(features)) / a
    for k in range(4):
        mixture = sum(
            math.comb(k, i) * a**i * (1 - a) ** (k - i) * np.linalg.matrix_power(changed, i)
            for i in range(k + 1)
        )
        np.testing.assert_allclose(mixture, np.linalg.matrix_power(operator, k), atol=1e-12)
    model = dataclasses.replace(
        solved.CONFIG, cell=CellConfig.of("second_order", features=features)
    ).make_model(solved.make_task())
    found = [
        float(measures.operator_lengths(model, {"cell": {"operators": np.float32(each)[None]}}))
        for each in (operator, changed)
    ]
    assert found[0] == 0
    assert found[1] > 0.5


def test_the_entropy_is_that_of_all_commands(monkeypatch):
    """Of one, of several, but of nothing else that a cell records."""
    chances: Any = np.array([[[1.0, 0.0], [0.5, 0.5]]], np.float32)
    recorded = {f"m{COORDINATES}": chances, "address": chances, f"n{COORDINATES}": chances}
    recorded[f"k{COORDINATES}"] = np.full((1, 2, 4), 0.25, np.float32)

    @functools.partial(jax.jit, static_argnums=0)
    def found(names):
        intermediates = {name: recorded[name] for name in names}
        output = models.RecurrentOutput(chances, chances, intermediates=intermediates)
        monkeypatch.setattr(models, "run_with_intermediates", lambda *_: output)
        return measures.predict_with_entropy(model, {}, chances)[1]

    model = solved.CONFIG.make_model(solved.make_task())
    one, two, four = 0.0, math.log(2), math.log(4)
    np.testing.assert_allclose(found(tuple(recorded)), [[2 * one + four, 2 * two + four]], rtol=1e-6)
    np.testing.assert_allclose(found(tuple(recorded)[:2]), [[one, two]], rtol=1e-6)


def test_summary_of_counts():
    counts = {"wrong": 3, "symbols": 60, "sequences_wrong": 2, "sequences": 12}
    summary = measures.summarize(counts)
    assert summary["error"] == pytest.approx(0.05)
    assert summary["sequences_right"] == pytest.approx(10 / 12)
    assert (summary["symbols"], summary["sequences"]) == (60, 12)
    low, high = summary["sequences_right_interval"]
    assert low < 10 / 12 < high
    # Wilson's interval at 95 %: its ends are where |p - 10/12| = 1.96 sqrt(p (1 - p) / 12).
    for end in (low, high):
        assert abs(end - 10 / 12) == pytest.approx(1.96 * np.sqrt(end * (1 - end) / 12), rel=1e-3)


def test_the_score_of_a_string_task_is_the_mean_accuracy():
    """A model that always answers 0 is right as often as 0 is the answer."""
    task = tasks.make("parity")
    assert isinstance(task, tasks.StringTask)
    config = short(task="parity", cell=CellConfig.of("elman", features=2))
    model = config.make_model(task)
    params = {
        "cell": {
            "hidden": {"kernel": np.zeros((2, 2), np.float32)},
            "input": {"kernel": np.zeros((3, 2), np.float32), "bias": np.zeros(2, np.float32)},
        },
        "outputs": {"kernel": np.zeros((2, 2), np.float32), "bias": np.array([1, 0], np.float32)},
    }

    @functools.partial(jax.jit, static_argnames="longest")
    def draw(length, longest):
        key = jax.random.fold_in(jax.random.key(measures.EVALUATION_SEED), length)
        return task.sample(key, 20, length, max_length=longest)

    shares = []
    for length in range(62, 67):
        batch = draw(length, 64 if length <= 64 else 66)
        mask = np.asarray(batch.mask)
        shares.append(np.mean(np.asarray(batch.targets)[mask] == 0))
    assert measures.score(task, model, params, 20, range(62, 67)) == pytest.approx(np.mean(shares))


def test_the_score_is_that_of_one_tape(monkeypatch):
    """In every bucket, here of 4 lengths, with room for the longest length."""
    config = short(task="parity", cell=CellConfig.of("tape_rnn", features=3, memory_size=1))
    task, sizes = config.make_task(), []
    assert isinstance(task, tasks.StringTask)

    def recorded(model, params, inputs):
        sizes.append(models.with_room(model, inputs.shape[1]).cell.memory_size)
        return np.zeros((*inputs.shape[:2], task.num_outputs), np.float32)

    monkeypatch.setattr(measures, "predict", recorded)
    monkeypatch.setattr(measures, "_SHARED", 4)
    measures.score(task, config.make_model(task), {}, 2, range(3, 10))
    assert sizes == [task.steps(9) + 1] * 3


def test_the_program_of_the_table_is_named_in_the_results():
    """Of known parameters; another cell or task has none."""
    task, cell = solved.make_task(), CellConfig.of("higher_order", coupling="table", max_power=3)
    config = dataclasses.replace(solved.CONFIG, cell=cell)
    params = {"cell": {"powers_table": {"kernel": 9 * np.eye(4, dtype=np.float32)}}}
    found = measures.learned_numerals(config.make_model(task), task, params)["powers"]
    assert (found.powers, found.agreement) == ((0, 1, 2, 3), 1)
    words = tasks.make("word_problem")
    assert measures.learned_numerals(config.make_model(task), words, params) == {}
    assert measures.learned_numerals(solved.CONFIG.make_model(task), task, params) == {}


def test_both_programs_of_the_nested_loop_are_named():
    """The first up to the orders of the operators a, the second up to those of b a^m."""
    config = get_config("learned_coupling_composed")
    task = config.make_task()
    turned = 9 * np.eye(4, dtype=np.float32)[[0, 3, 2, 1]]
    params = {"cell": {"m_table": {"kernel": turned[[0, 3, 2, 1]]}, "n_table": {"kernel": turned}}}
    found = measures.learned_numerals(config.make_model(task), task, params)
    assert list(found) == ["m", "n"]
    assert (found["m"].powers, found["m"].agreement) == ((0, 1, 2, 3), 1)
    assert found["n"].numerals == (0, 3, 2, 1)
    assert found["n"].agreement < 0.9
    assert isinstance(task, tasks.NestedPowers)
    orders = task.elements.element_orders()
    assert found["m"].modulus == np.lcm.reduce(orders[list(task.operator_elements[:6])])
