"""Configs of the LLRNN experiment: presets, cells, mistakes."""

import dataclasses
import functools
import inspect
from pathlib import Path
from typing import Any, cast

import jax
import numpy as np
import pytest
from absl import flags
from flax import linen as nn
from ml_collections import config_flags

from experiments.llrnn import EXPERIMENT, train
from experiments.llrnn.config import AUTHORS_TASKS, Config, get_config
from experiments.llrnn.encoders import EncoderConfig
from experiments.llrnn.parts import ACTIVATIONS, Activation, CellConfig, TaskOptions
from experiments.runtime import claims, launching, releasing
from experiments.runtime.config import from_dict
from experiments.runtime.workdir import config_dict, config_difference
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
    dataclasses.replace(config, cell=config.cell.as_variant(cell)).validate()


@pytest.mark.parametrize("cell", models.CELLS)
def test_any_cell_can_take_the_place_of_a_presets(cell):
    """What the flag `--config.cell.name=CELL` does: it keeps the preset's values of what both have."""
    config: Any = get_config("length_generalization")
    config.cell = config.cell.as_variant(cell)
    config.cell.features = 9
    config.validate()
    made = config.cell.make()
    if cell == "proof":
        assert made.initialize_carry(jax.random.key(0), (1, 2)).shape == (1, 9)
        return
    assert made.features == 9
    assert getattr(made, "memory_size", 512) == 512


@pytest.mark.parametrize("name", ["quick", "copy", "word_problem", "authors_copy"])
def test_published_runs_are_runs_of_their_presets(name):
    """The configs released with the weights and figures; one run was trained without its baseline."""
    published = releasing.read_run_config(Config, ROOT / "results" / "llrnn" / name)
    preset = get_config(name)
    if name == "word_problem":
        assert preset.baseline == CellConfig.of("lstm", features=128)
        published.baseline = preset.baseline
    assert published == preset


def test_length_generalization_is_trained_and_scored_as_in_the_paper():
    """Batches of 128 and Adam at 1e-3, one of their rates; lengths to 40, scored from 41 to 500."""
    config: Any = get_config("length_generalization")
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
    config: Any = get_config("learned_coupling")
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
    instead = dataclasses.replace(get_config("quick"), encoder=EncoderConfig.of("lstm"))
    assert card.title(instead) == "the baseline lstm on the task group_powers"


def test_every_task_of_the_authors_has_a_preset_at_its_own_lengths():
    """And with the authors' tape, at whose end variable patterns are cut off."""
    for task in AUTHORS_TASKS:
        config: Any = get_config(f"authors_{task}")
        assert config.make_task() == tasks.make(task, **{"truncate": True} if "variable" in task else {})
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
    cell = CellConfig.of("higher_order", features=4, coupling="table", max_power=7)
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
    config: Any = table_of_powers(table_lr=0.1)
    config.cell.coupling = "given"
    with pytest.raises(
        ValueError, match=r"table_lr: got 0\.1, expected 0 with 'higher_order', which has no table"
    ):
        config.validate()


def test_the_model_is_built_as_configured():
    config = short(task="parity", cell=CellConfig.of("lstm", features=7), hidden_outputs=5, unroll=3)
    model = config.make_model(config.make_task())
    assert (model.num_outputs, model.hidden_outputs, model.unroll) == (2, 5, 3)
    assert isinstance(model.cell, nn.OptimizedLSTMCell)
    plain = dataclasses.replace(config, hidden_outputs=0)
    assert plain.make_model(plain.make_task()).hidden_outputs is None
    relu, tanh = (CellConfig.of("elman", activation=name).make() for name in ("relu", "tanh"))
    assert (relu.activation, tanh.activation) == (nn.relu, nn.tanh)


NEST = CellConfig.of(
    "proof",
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


def cell(name="ntm", **fields):
    return {"cell": CellConfig.of(name, **fields)}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"task": "nonsense"}, r"task: got 'nonsense', expected one of 'copy', 'repeat_copy'.*'bucket_sort'"),
        ({"cell": CellConfig()}, r"name: got 'none', expected one of .*higher_order.*ntm"),
        (cell(name="lstm") | {"encoder": EncoderConfig("gru")}, r"encoder\.name: got 'gru', expected one of"),
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
        ({"cell": EncoderConfig.of("lstm")}, r"cell: got LSTM\(name='lstm', .*, expected type CellConfig"),
        ({"baseline": CellConfig("gru")}, r"baseline\.name: got 'gru', expected one of 'none'"),
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
        (
            {"task": "group_powers"} | cell("higher_order", coupling="given", max_power=8),
            r"cell: got given commands and tables that read \(9,\) features, expected \(8,\), the numbers of",
        ),
        *(
            (
                {"task": "nested_powers", "cell": dataclasses.replace(NEST, inputs=commands)},
                rf"cell: got .* read \({width}, {width}\) features, expected \(4, 4\), .* of 'nested_powers'",
            )
            for width, commands in (
                (3, ("m: table numerals 2", "n: table numerals 2", "x: input 0:6", "y: input 6:12")),
                (6, ("m: given numerals 5", "n: given numerals 5", "x: input 0:4", "y: input 4:8")),
            )
        ),
    ],
)
def test_a_mistake_in_a_config_is_named(change, message):
    with pytest.raises(ValueError, match=message):
        short(**change).validate()


@pytest.mark.parametrize(
    "change",
    [{"cell": CellConfig.of("elman", features=2)}, {"encoder": EncoderConfig.of("lstm", 4)}],
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
    config: Any = get_config("learned_coupling")
    config.cell.coupling = "both"
    with pytest.raises(ValueError, match=r"table_lr: got 0\.01, .* set --config\.table_lr=0 as well"):
        config.validate()
    config.table_lr = 0.0
    config.validate()


def test_the_state_of_a_proof_starts_as_its_config_says():
    made = CellConfig.of(
        "proof", features=2, proof=r"\s:H & W[3]. s", inputs=(), initial=("0.5", "unit 1")
    ).make()
    start = made.initialize_carry(jax.random.key(0), (1, 4))
    np.testing.assert_array_equal(start, [[0.5, 0.5, 0, 1, 0]])


@pytest.mark.parametrize("name", ["operator_length", "orthogonality"])
def test_a_cell_without_operators_has_no_price_of_operators(name):
    weight: dict[str, Any] = {name: 0.1}
    config = dataclasses.replace(LEARNED, cell=CellConfig.of("elman", features=2), **weight)
    with pytest.raises(ValueError, match=rf"{name}: got 0\.1, expected 0 with 'elman', which has no"):
        config.validate()


def test_every_cell_by_name_has_a_config():
    """With its own defaults; a number, switch or word of a cell of ours can be set on the command line."""
    assert set(models.CELLS) == set(CellConfig.variants) - {"none"}
    for name, make in models.CELLS.items():
        own = {key: each.default for key, each in inspect.signature(make).parameters.items()}
        fields = {field.name: field.default for field in dataclasses.fields(CellConfig.variants[name])}
        assert fields.pop("name") == name
        assert fields.pop("features") == 64
        if "activation" in fields:
            assert ACTIVATIONS[cast(Activation, fields.pop("activation"))] is own["activation"]
        assert fields == {key: own[key] for key in fields}
        plain = {key for key, value in own.items() if isinstance(value, bool | int | str | tuple)}
        assert plain - fields.keys() - EXPERTS == set(), name


EXPERTS = {"squash", "source", "polynomials"}
"""Fields that only Python sets: the draft's own equations, which were seen to fail, and nested tuples."""


def test_a_wrong_name_or_field_of_a_cell_is_refused():
    with pytest.raises(ValueError, match=r"^name: got 'gru', expected one of 'none', 'lstm', .*'ntm'"):
        CellConfig.of("gru")
    with pytest.raises(TypeError, match="unexpected keyword argument 'powers'"):
        CellConfig.of("lstm", powers=(1,))
    config: Any = get_config("copy")
    config.cell.name = "lstm"
    with pytest.raises(ValueError, match=r"cell\.name: got 'lstm', expected one of 'ntm'"):
        config.validate()


def test_a_run_from_before_each_cell_had_its_class_has_not_changed():
    """It recorded None for a default, and values of the preset that the cell in its place did not use."""
    config = short(cell=CellConfig.of("elman", features=5, normalize=True))
    before = config_dict(config)
    ignored = {"memory_size": 64, "powers": [0, 1], "update": None, "activation": None, "words": None}
    before["cell"] |= ignored
    before["encoder"] |= {"features": 64, "heads": None, "operators": None}
    before["baseline"] |= {"features": 64, "memory_size": None}
    assert config_difference(before, config) == []
    assert claims.changes(before, config) == []
    assert from_dict(Config, {"cell": before["cell"]}).cell == config.cell
    del before["encoder"]  # added since
    assert config_difference(before, config) == []


def test_a_run_with_another_cell_or_value_is_another_run():
    config = short(cell=CellConfig.of("elman", features=5, normalize=True))
    before = config_dict(config)
    for changed, lines in (
        ({"normalize": False}, ["cell.normalize: got true, expected false"]),
        ({"update": "linear"}, ['cell.update: got "draft", expected "linear"']),
        ({"name": "second_order"}, ['cell.name: got "elman", expected "second_order"']),
        ({"zzz": 1}, ["cell.zzz: got nothing, expected 1"]),
    ):
        assert config_difference(before | {"cell": before["cell"] | changed}, config) == lines
    assert claims.changes(before | {"cell": before["cell"] | {"zzz": 1}}, config, "Elman: config.") == [
        "Elman: config: config: got field 'cell.zzz', expected a field of Elman"
    ]


def given(*arguments):
    """The config that a command line of the experiment gives."""
    values = flags.FlagValues()
    argv = launching._with_files(EXPERIMENT, ["program", *arguments])
    config_flags.DEFINE_config_file("config", flag_values=values, sys_argv=argv)
    values["config"].parser = launching._ConfigParser(argv)
    values(argv)
    return values.config


@pytest.mark.filterwarnings("ignore:the load_module:DeprecationWarning")  # of ml_collections
def test_a_name_on_the_command_line_replaces_the_cell_or_the_encoder():
    """Whatever the order and the preset, whose values of the fields that both have are kept."""
    one, two = "--config.cell.name=stack_rnn", "--config.cell.features=32"
    for order in (
        [one, two],
        [two, "--config.cell.name", "stack_rnn"],
        ["--config.cell.name=lstm", one, two],
    ):
        assert given("--config=copy", *order).cell == CellConfig.of(
            "stack_rnn", features=32, activation="tanh", memory_size=64, memory_width=12
        )
    config = given("--config.encoder.layers=3", "--config.encoder.name=transformer", "--config.seed=4")
    expected = EncoderConfig.of("transformer", layers=3)
    preset = dataclasses.replace(get_config("quick"), encoder=expected, seed=4)
    assert config_difference(config_dict(preset), config) == []
    assert given("--config=quick", "--config.baseline.name=none").baseline == CellConfig()
    with pytest.raises(flags.Error, match=r"^cell\.name: got 'gru', expected one of 'none', 'lstm'"):
        given("--config.cell.name=gru")
    wrong = "--config.cell.memory_size=3"
    with pytest.raises(KeyError):
        given("--config=copy", "--config.cell.name=lstm", wrong)
    file = launching.config_file(EXPERIMENT, "copy")
    assert launching._unknown_field([wrong], file) is None
    assert launching._unknown_field(["--config.cell.name=lstm", wrong], file) == (
        "--config.cell.memory_size: no such field, expected one of name, features"
    )
