"""Configs of the LLRNN experiment: presets, cells, mistakes."""

import dataclasses
import functools
from pathlib import Path
from typing import Any, cast

import jax
import numpy as np
import pytest
from flax import linen as nn

from experiments.llrnn import EXPERIMENT, train
from experiments.llrnn.config import AUTHORS_TASKS, Config, get_config
from experiments.llrnn.parts import CellConfig, EncoderConfig, TaskOptions
from experiments.runtime import releasing
from llrnn import cells, logic, tasks
from llrnn import model as models
from tests.experiments.llrnn.small import LEARNED, short

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize("preset", get_config.names)
def test_presets_are_valid(preset):
    get_config(preset).validate()


@pytest.mark.parametrize("cell", ["pattern_ntm", "multiple_pattern_ntm", "polynomial_ntm"])
def test_the_authors_presets_take_their_other_models(cell):
    config = get_config("authors_pattern_4")
    dataclasses.replace(config, cell=dataclasses.replace(config.cell, name=cell)).validate()


@pytest.mark.parametrize("cell", models.CELLS)
def test_any_cell_can_take_the_place_of_a_presets(cell, caplog):
    """What the flag `--config.cell.name=CELL` does; only what the user did not choose is left out."""
    config = get_config("copy")
    config.cell.name = cell
    config.cell.features = 9
    config.validate()
    get_config("word_problem").validate()
    made = config.cell.make()
    if cell == "proof":
        assert made.initialize_carry(jax.random.key(0), (1, 2)).shape == (1, 9)
        return
    assert made.features == 9
    assert getattr(made, "memory_size", 64) == 64
    if cell == "elman":
        assert "elman has no fields erase, memory_size, memory_width, powers, sharpen" in caplog.text


@pytest.mark.parametrize("name", ["quick", "copy", "word_problem", "authors_copy"])
def test_published_runs_are_runs_of_their_presets(name):
    """The configs released with the weights and figures; one run was trained without its baseline."""
    published = releasing.read_run_config(Config, ROOT / "results" / "llrnn" / name)
    preset = get_config(name)
    if name == "word_problem":
        assert preset.baseline == CellConfig(name="lstm", features=128)
        published.baseline = preset.baseline
    assert published == preset


def test_length_generalization_is_trained_and_scored_as_in_the_paper():
    """Batches of 128 and Adam at 1e-3, one of their rates; lengths to 40, scored from 41 to 500."""
    config = get_config("length_generalization")
    assert (config.optimizer, config.lr, config.batch_size, config.clip) == ("adam", 1e-3, 128, 1.0)
    task = config.make_task()
    assert (task.name, task.train_lengths) == ("reverse_string", (1, 40))
    assert (task.test_lengths[0], task.test_lengths[-1]) == (41, 500)
    assert config.score_examples == 32
    # A location for every symbol that the longest string has, and a controller that moves by one.
    assert (config.cell.memory_size, config.cell.powers) == (512, (0, -1, 1))
    assert (config.cell.activation, config.cell.erase, config.cell.sharpen) == ("tanh", True, True)


def test_a_learned_coupling_is_a_table_with_restarts():
    """As many numerals as tokens; a third of the pairs is held out."""
    config = get_config("learned_coupling")
    task = config.make_task()
    assert isinstance(task, tasks.GroupPowers)
    assert task.fields == (6, 24)
    assert len(task.held_out_pairs) == 48
    assert (config.cell.coupling, config.cell.max_power) == ("table", 5)
    assert config.further_steps == 40 * 2400
    assert [dataclasses.replace(config, restarts=count).further_steps for count in (1, 2)] == [0, 2 * 2400]


def test_a_composed_coupling_learns_both_programs_of_a_nested_loop():
    """More than 100 of its steps are held out; x reads the field of a, y that of b."""
    config = get_config("learned_coupling_composed")
    task = config.make_task()
    assert isinstance(task, tasks.NestedPowers)
    assert task.fields == (4, 4, 6, 6)
    assert len(task.held_out_steps) == 128
    m, n, x, y = config.make_model(task).cell.inputs
    assert (m.coupling, n.coupling, m.temperature, n.temperature) == ("table", "table", 0.3, 0.3)
    assert (x.features, y.features) == ((0, 6), (6, 12))
    assert config.further_steps == 24 * 6000


def test_a_card_names_what_was_trained():
    card = EXPERIMENT.card
    assert card is not None
    titles = [card.title(get_config(name)) for name in ("copy", "word_problem")]
    assert titles == [
        "a location-addressed NTM on the task copy", "a second_order cell on the task word_problem"
    ]  # fmt: skip
    instead = dataclasses.replace(get_config("quick"), encoder=EncoderConfig(name="lstm"))
    assert card.title(instead) == "the baseline lstm on the task group_powers"


def test_every_task_of_the_authors_has_a_preset_at_its_own_lengths():
    for task in AUTHORS_TASKS:
        config = get_config(f"authors_{task}")
        assert config.make_task() == tasks.make(task)
        assert (config.batch_size, config.cell.features, config.lr) == (250, 100, 1e-4)
    assert set(AUTHORS_TASKS) < set(tasks.NAMES)


def updates(**fields):
    """The updates of two steps with the gradient (3, -4), without clipping unless asked for."""
    optimizer = short(**{"clip": 0.0} | fields).make_optimizer()
    gradient = np.array([3.0, -4.0], np.float32)
    state = optimizer.init(gradient)
    first, state = optimizer.update(gradient, state, gradient)
    second, _ = optimizer.update(gradient, state, gradient)
    return np.stack([np.asarray(cast(Any, update)) for update in (first, second)])


def test_optimizers_are_those_of_their_names():
    """In closed form for a constant gradient g."""
    g, sign = np.array([3.0, -4.0]), np.array([1.0, -1.0])
    close = functools.partial(np.testing.assert_allclose, rtol=1e-4)
    close(updates(optimizer="sgd", lr=0.5), [-0.5 * g, -0.5 * g])
    close(updates(optimizer="adam", lr=0.5), [-0.5 * sign, -0.5 * sign])
    # RMSProp: the mean square is .1 g^2, then .19 g^2; momentum keeps .9 of the last step.
    first, second = sign / np.sqrt(0.1), sign / np.sqrt(0.19)
    close(updates(optimizer="rmsprop", lr=0.5), [-0.5 * first, -0.5 * (second + 0.9 * first)])
    # The gradient's norm is 5.
    close(updates(optimizer="sgd", lr=0.5, clip=1.0), [-0.1 * g, -0.1 * g])
    close(updates(optimizer="sgd", lr=0.5, clip=6.0), [-0.5 * g, -0.5 * g])


def table_of_powers(**fields):
    cell = CellConfig(name="higher_order", features=4, coupling="table", max_power=7)
    return short(task="group_powers", cell=cell, **fields)


def test_a_table_has_a_rate_of_its_own():
    """Of all parameters it alone; both rates are of the optimizer that the config names."""
    config = table_of_powers(optimizer="sgd", lr=0.5, table_lr=0.25, clip=0.0)
    config.validate()
    assert config.for_baseline(1.0).table_lr == 0
    params = jax.eval_shape(train.make_training(config).init, jax.random.key(0))
    gradient = jax.tree.map(lambda leaf: np.ones(leaf.shape, np.float32), params)
    optimizer = config.make_optimizer()
    update, _ = optimizer.update(gradient, optimizer.init(gradient), gradient)
    found = {jax.tree_util.keystr(path): np.unique(leaf) for path, leaf in jax.tree.leaves_with_path(update)}
    assert found.pop("['cell']['powers_table']['kernel']") == [-0.25]
    assert len(found) == 6
    assert all(values == [-0.5] for values in found.values())


def test_a_rate_of_tables_needs_a_table():
    config = table_of_powers(table_lr=0.1)
    config.cell.coupling = "given"
    with pytest.raises(
        ValueError, match=r"table_lr: got 0\.1, expected 0 with 'higher_order', which has no table"
    ):
        config.validate()


def test_the_model_is_built_as_configured():
    config = short(task="parity", cell=CellConfig(name="lstm", features=7), hidden_outputs=5, unroll=3)
    model = config.make_model(config.make_task())
    assert (model.num_outputs, model.hidden_outputs, model.unroll) == (2, 5, 3)
    assert isinstance(model.cell, nn.OptimizedLSTMCell)
    plain = dataclasses.replace(config, hidden_outputs=0)
    assert plain.make_model(plain.make_task()).hidden_outputs is None
    relu, tanh = (CellConfig(name="elman", activation=name).make() for name in ("relu", "tanh"))
    assert (relu.activation, tanh.activation) == (nn.relu, nn.tanh)


NEST = CellConfig(
    name="proof",
    features=8,
    proof=r"\!m:!int. \!n:!int. \!x:!E. \!y:!E. n !(\z:H. y (m !x z))",
    inputs=("m: given numerals 3", "n: given numerals 3", "x: input", "y: input"),
    inside=(),
    normalize=True,
)
"""The cell of `examples/linear_logic_cell.py`."""


def test_a_proof_from_the_command_line_is_the_cell_of_the_example():
    a = logic.Atom("H", 8)
    master = logic.banged(
        logic.integer(a),
        logic.integer(a),
        logic.endo(a),
        logic.endo(a),
        lambda m, n, x, y: n(logic.bang(logic.lam(a, lambda z: y(m(logic.bang(x))(z))))),
    )
    span = logic.numeral_span(3, a)
    given = (cells.Command("m", span, "given"), cells.Command("n", span, "given"))
    example = cells.LLRNNCell(
        master,
        (*given, cells.Input("x"), cells.Input("y")),
        inside=(),
        normalize=True,
        initial=np.eye(8)[0],
    )
    made = NEST.make()
    assert made.master == master
    rng = np.random.default_rng(0)
    x = rng.normal(size=(3, 16)).astype("f4")
    shapes = jax.eval_shape(lambda: made.init(jax.random.key(2), jax.numpy.zeros((3, 8)), x))
    variables = jax.tree.map(lambda leaf: rng.normal(size=leaf.shape).astype("f4"), shapes)

    @jax.jit
    def both(variables):
        starts = [cell.initialize_carry(jax.random.key(0), x.shape) for cell in (made, example)]
        return starts, [cell.apply(variables, starts[0], x)[0] for cell in (made, example)]

    for got, want in both(variables):
        np.testing.assert_array_equal(got, want)


def test_a_proof_can_take_the_place_of_a_presets_cell():
    """`quick` has tokens (k, g): k is the command, in the first 8 features, and g selects an operator."""
    config = get_config("quick")
    config.cell = dataclasses.replace(
        NEST,
        features=32,
        proof=r"\!n:!int. \!x:!E. n !x",
        inputs=("powers: given numerals 7", "operators: input"),
    )
    config.validate()
    named = get_config("quick")
    shapes = [
        jax.eval_shape(
            c.make_model(c.make_task()).init, jax.random.key(0), jax.ShapeDtypeStruct((1, 2, 12), "float32")
        )
        for c in (config, named)
    ]
    sizes = [sorted(leaf.size for leaf in jax.tree.leaves(shape)) for shape in shapes]
    assert sizes[0] == sizes[1]


def cell(**fields):
    return {"cell": CellConfig(**fields)}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"task": "nonsense"}, r"task: got 'nonsense', expected one of 'copy', 'repeat_copy'.*'bucket_sort'"),
        ({"cell": CellConfig(name="gru")}, r"name: got 'gru', expected one of .*higher_order.*ntm"),
        ({"cell": CellConfig(name="lstm", powers=(1,))}, r"options of lstm: got 'powers'"),
        (
            cell(name="proof", proof=r"\!x:!E. y"),
            r"proof: line 1, column 9: got `y`, expected a bound variable or one of 0, 1, .*, square, x$",
        ),
        (
            cell(name="proof", proof=r"\x:E. \!y:!E. x"),
            r"inputs: got 1 declarations, expected 0, one per banged input of proof",
        ),
        (cell(name="proof", inputs=("x input",)), r"inputs: got 'x input', expected `NAME: SOURCE` with a"),
        (cell(activation="gelu"), r"activation: got 'gelu', expected one of 'relu', 'tanh'"),
        ({"baseline": CellConfig(name="gru")}, r"name: got 'gru'"),
        ({"task_options": TaskOptions(group="S3")}, r"options of copy: got 'group', expected one of"),
        ({"optimizer": "adamw"}, r"optimizer: got 'adamw', expected one of 'adam', 'rmsprop', 'sgd'"),
        *(
            ({name: -1}, rf"{name}: got -1, expected at least 0")
            for name in (
                *("lr", "baseline_lr", "clip", "hidden_outputs", "score_examples"),
                *("entropy", "operator_length", "orthogonality"),
            )
        ),
        *(
            ({name: 0}, rf"{name}: got 0, expected at least 1")
            for name in ("unroll", "eval_examples", "final_examples")
        ),
        ({"clip": float("nan")}, r"clip: got nan, expected at least 0"),
    ],
)
def test_a_mistake_in_a_config_is_named(change, message):
    with pytest.raises(ValueError, match=message):
        short(**change).validate()


@pytest.mark.parametrize(
    "change",
    [{"cell": CellConfig(name="elman", features=2)}, {"encoder": EncoderConfig("lstm", 4)}],
    ids=["cell", "encoder"],
)
def test_a_model_without_commands_has_no_price_of_their_entropy(change):
    config = dataclasses.replace(LEARNED, **change)
    with pytest.raises(
        ValueError, match="entropy: got a weight above 0, expected 0 for a cell that computes"
    ):
        config.validate()
    dataclasses.replace(config, entropy=0.0).validate()


def test_another_coupling_of_the_preset_needs_no_rate_for_its_table():
    """What the flag `--config.cell.coupling=both` does, and what its refusal proposes."""
    config = get_config("learned_coupling")
    config.cell.coupling = "both"
    with pytest.raises(ValueError, match=r"table_lr: got 0\.01, .* set --config\.table_lr=0 as well"):
        config.validate()
    config.table_lr = 0.0
    config.validate()


def test_the_state_of_a_proof_starts_as_its_config_says():
    made = CellConfig(
        name="proof", features=2, proof=r"\s:H & W[3]. s", inputs=(), initial=("0.5", "unit 1")
    ).make()
    start = made.initialize_carry(jax.random.key(0), (1, 4))
    np.testing.assert_array_equal(start, [[0.5, 0.5, 0, 1, 0]])


@pytest.mark.parametrize("name", ["operator_length", "orthogonality"])
def test_a_cell_without_operators_has_no_price_of_operators(name):
    weight: dict[str, Any] = {name: 0.1}
    config = dataclasses.replace(LEARNED, cell=CellConfig(name="elman", features=2), **weight)
    with pytest.raises(ValueError, match=rf"{name}: got 0\.1, expected 0 with 'elman', which has no"):
        config.validate()


def test_every_cell_by_name_has_a_config():
    """A number, switch or word of a cell of ours can be set on the command line."""
    settable = {field.name for field in dataclasses.fields(CellConfig)}
    for name in models.CELLS:
        if name in ("lstm", "proof"):
            assert set(models.cell_fields(name)) <= settable or name == "lstm"
            continue
        cell = models.make_cell(name, features=4)
        plain = {
            field
            for field in models.cell_fields(name)
            if isinstance(getattr(cell, field), bool | int | str | tuple)
        }
        assert plain - settable - EXPERTS == set(), name


EXPERTS = {"squash", "source", "polynomials"}
"""Fields that only Python sets: the draft's own equations, which were seen to fail, and nested tuples."""
