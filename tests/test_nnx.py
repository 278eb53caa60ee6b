"""Every public linen module works in NNX through `flax.nnx.bridge.ToNNX`, and gives what linen gives."""

import functools
import importlib
import inspect
import pkgutil
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import linen as nn
from flax import nnx
from flax.nnx import bridge

import folnet
import simplicial
import tp_transformer
from llrnn import memory
from llrnn.model import RecurrentModel
from tests.simplicial.small import of_shapes, parameters
from tests.small_modules import (
    FEW,
    NTM,
    ONE,
    ROWS,
    SOURCE,
    STEPS,
    TARGET,
    TEXT,
    TEXTS,
    TWO,
    VIRTUAL,
    Row,
    X,
    ones,
)

pytestmark = pytest.mark.usefixtures("compiled_quickly")

PACKAGES = ("kernels", "simplicial", "tp_transformer", "folnet", "llrnn")


def public_modules(package: str) -> set[type[nn.Module]]:
    """Returns the linen modules among the public names of a package and of the packages in it.

    A package without `__all__` exports its modules, so its public names are those that they define.
    """
    top = importlib.import_module(package)
    exported = getattr(top, "__all__", None)
    values = [getattr(top, name) for name in exported or ()]
    found: set[type[nn.Module]] = set()
    for child in pkgutil.iter_modules(top.__path__, f"{package}."):
        if child.ispkg:
            found |= public_modules(child.name)
        elif exported is None:
            defined = vars(importlib.import_module(child.name)).items()
            values += [
                value
                for name, value in defined
                if not name.startswith("_") and getattr(value, "__module__", None) == child.name
            ]
    return found | {value for value in values if inspect.isclass(value) and issubclass(value, nn.Module)}


def in_nnx(row: Row, params: Mapping[str, Any] | None = None) -> Any:
    """Returns the row's module in NNX with linen parameters, without compiling anything."""
    params = parameters(row.module, *row.inputs, **row.options)["params"] if params is None else params
    model = nnx.eval_shape(
        lambda: bridge.ToNNX(row.module).lazy_init(*row.inputs, **row.options, rngs=jax.random.key(0))
    )
    nnx.update(model, params)
    return model


def in_linen(model: Any) -> dict[str, Any]:
    """Returns the parameters as those of the linen module."""
    return nnx.to_pure_dict(nnx.state(model, nnx.Param))


def same_program(linen: Any, linen_arguments: Any, in_nnx: Any, nnx_arguments: Any) -> None:
    """Checks that two functions trace to the same operations on the same constants."""
    programs = [
        jax.make_jaxpr(linen)(*linen_arguments), jax.make_jaxpr(in_nnx)(*nnx_arguments)
    ]  # fmt: skip
    assert str(programs[1]) == str(programs[0])
    for got, wanted in zip(programs[1].consts, programs[0].consts, strict=True):
        np.testing.assert_array_equal(got, wanted)


def mean_square(output: Any) -> jax.Array:
    """Returns a loss of all floating-point leaves."""
    leaves = [leaf for leaf in jax.tree.leaves(output) if jnp.issubdtype(leaf.dtype, jnp.floating)]
    return sum((jnp.mean(leaf**2) for leaf in leaves), jnp.zeros(()))


def test_every_public_module_has_a_row():
    found = set().union(*map(public_modules, PACKAGES))
    assert found == set(ROWS)
    assert all(type(row.module) is kind for kind, row in ROWS.items())


DEFAULT = (
    simplicial.RelationalBlock,
    tp_transformer.TPMultiHeadAttention,
    folnet.FOLNetForSequenceClassification,
    folnet.RelationHead,
    memory.NTMCell,
    RecurrentModel,
)
"""Modules of every package, alone and of several others, with masks, dropout, and a state for a cell."""


@pytest.mark.parametrize("kind", DEFAULT, ids=lambda kind: kind.__name__)
def test_calls_and_initial_parameters_are_linens(kind):
    """The programs are the same, so compiled alike they return the same bits, and so do their gradients."""
    check_calls_and_initial_parameters(ROWS[kind])


def check_calls_and_initial_parameters(row):
    module, key, traced = row.module, jax.random.key(7), {}

    def initial(key):
        traced["params"] = module.init(key, *row.inputs, **row.options)["params"]
        return traced["params"]

    def wrapped_initial(key):
        model = bridge.ToNNX(module).lazy_init(*row.inputs, **row.options, rngs=key)
        traced["model"] = nnx.split(model)
        return in_linen(model)

    same_program(initial, (key,), wrapped_initial, (key,))
    params = of_shapes(traced["params"])
    graph, state = traced["model"]
    nnx.replace_by_pure_dict(state, params)

    def linen(params, inputs, key):
        rngs = {"dropout": nnx.Rngs(dropout=key).dropout()}
        return module.apply({"params": params}, *inputs, **row.with_dropout, rngs=rngs)

    def wrapped(state, inputs, key):
        model = nnx.merge(graph, state)
        return model(*inputs, **row.with_dropout, rngs=nnx.Rngs(dropout=key))

    same_program(linen, (params, row.inputs, key), wrapped, (state, row.inputs, key))


DIFFERENTIATED = (
    simplicial.TwoSimplicialAttention,
    tp_transformer.TPMultiHeadAttention,
    folnet.FOLNetForSequenceClassification,
    memory.NTMCell,
)


@pytest.mark.parametrize("kind", DIFFERENTIATED, ids=lambda kind: kind.__name__)
def test_gradients_are_linens(kind):
    """Of one module per package: the programs of the calls, above, determine those of their gradients."""
    row = ROWS[kind]
    module, key = row.module, jax.random.key(7)
    params = parameters(module, *row.inputs, **row.options)["params"]
    model = in_nnx(row, params)
    for got, wanted in zip(jax.tree.leaves(in_linen(model)), jax.tree.leaves(params), strict=True):
        np.testing.assert_array_equal(got, wanted)
    graph, state = nnx.split(model)

    def linen(params, inputs, key):
        def loss(params):
            rngs = {"dropout": nnx.Rngs(dropout=key).dropout()}
            output = module.apply({"params": params}, *inputs, **row.with_dropout, rngs=rngs)
            return mean_square(output), output

        return jax.value_and_grad(loss, has_aux=True)(params)

    def wrapped(state, inputs, key):
        def loss(model):
            output = model(*inputs, **row.with_dropout, rngs=nnx.Rngs(dropout=key))
            return mean_square(output), output

        value, grads = nnx.value_and_grad(loss, has_aux=True)(nnx.merge(graph, state))
        return value, nnx.to_pure_dict(grads)

    same_program(linen, (params, row.inputs, key), wrapped, (state, row.inputs, key))


def test_initial_parameters_of_other_keys():
    """Those of linen with a key derived from the one that `ToNNX` is given."""
    module, inputs, key = ONE, jnp.asarray(X), jax.random.key(5)

    @nnx.jit
    def wrapped():
        given = (key, nnx.Rngs(5), nnx.Rngs(params=5))
        models = [bridge.ToNNX(module, rngs=rngs).lazy_init(inputs) for rngs in given]
        return [in_linen(model) for model in models]

    @jax.jit
    def linen():
        forks = [rngs.fork().params() for rngs in (nnx.Rngs(5), nnx.Rngs(params=5))]
        return [module.init(each, inputs)["params"] for each in (jax.random.fold_in(key, 0), *forks)]

    jax.tree.map(np.testing.assert_array_equal, wrapped(), linen())


SMALL = {
    "simplicial": ROWS[simplicial.RelationalBlock],
    "tp_transformer": ROWS[tp_transformer.TPMultiHeadAttention],
    "folnet": Row(folnet.FOLNetForSequenceClassification(FEW), TEXTS),
    "llrnn": Row(nn.RNN(memory.NTMCell(**NTM)), (STEPS,)),
}


def test_training_lowers_the_loss_as_in_linen():
    """Trained parameters, taken back to linen, are those that linen and optax reach."""
    check_training(SMALL["tp_transformer"])


@pytest.mark.slow
def test_training_in_the_other_packages_lowers_the_loss_as_in_linen():
    for package, row in SMALL.items():
        if package != "tp_transformer":
            check_training(row)


def check_training(row):
    params = parameters(row.module, *row.inputs, **row.options)["params"]
    model = in_nnx(row, params)
    adam = optax.adam(1e-2)
    optimizer = nnx.Optimizer(model, adam, wrt=nnx.Param)

    @nnx.jit
    def step(model, optimizer):
        value, grads = nnx.value_and_grad(lambda model: mean_square(model(*row.inputs, **row.options)))(model)
        optimizer.update(model, grads)
        return value

    @jax.jit
    def linen_step(params, state):
        def loss(params):
            return mean_square(row.module.apply({"params": params}, *row.inputs, **row.options))

        value, grads = jax.value_and_grad(loss)(params)
        updates, state = adam.update(grads, state, params)
        return optax.apply_updates(params, updates), state, value

    state, losses, linen_losses = adam.init(params), [], []
    for _ in range(4):
        losses.append(float(step(model, optimizer)))
        params, state, value = linen_step(params, state)
        linen_losses.append(float(value))
    assert losses[-1] < 0.99 * losses[0]
    assert losses == linen_losses
    jax.tree.map(np.testing.assert_array_equal, in_linen(model), params)


def test_cells_run_over_sequences():
    """Inside `flax.linen.RNN`; the initial state is a method of a wrapped cell, too."""
    check_over_sequences(ROWS[memory.NTMCell].module)


def check_over_sequences(cell):
    rnn = nn.RNN(cell)
    params = parameters(rnn, STEPS)["params"]
    graph, state = nnx.split(in_nnx(Row(rnn, (STEPS,)), params))

    def linen(params, inputs):
        return rnn.apply({"params": params}, inputs)

    same_program(linen, (params, STEPS), lambda state, x: nnx.merge(graph, state)(x), (state, STEPS))
    model, key, shape = in_nnx(ROWS[type(cell)], params["cell"]), jax.random.key(0), STEPS[:, 0].shape
    same_program(
        lambda key: cell.initialize_carry(key, shape),
        (key,),
        lambda key: model.initialize_carry(key, shape),
        (key,),
    )


def placeholder(module: nn.Module, method: str, *arguments: Any, **options: Any) -> Any:
    """Returns an output of a method, of the right shapes, to give to the next one."""
    call = functools.partial(module.init_with_output, method=method, **options)
    arguments = jax.tree.map(jnp.asarray, arguments)
    return ones(jax.eval_shape(lambda key: call(key, *arguments)[0], jax.random.key(0)))


def method_calls() -> list[tuple[type[nn.Module], str, tuple[Any, ...], dict[str, Any]]]:
    """Returns the public methods, with arguments that are traced and options that are not."""
    translator, writer, generator = (
        ROWS[kind].module
        for kind in (
            tp_transformer.TPTransformer,
            folnet.FOLNetForCausalLM,
            folnet.FOLNetForConditionalGeneration,
        )
    )
    encoded = placeholder(translator, "encode", SOURCE)
    memory_of_source = placeholder(translator, "remember", SOURCE)
    past = placeholder(translator, "empty_past", batch=2, hypotheses=1, length=4)
    _, written = placeholder(writer, "prefill", *TEXTS, capacity=8)
    begun = placeholder(generator, "prefill", *TEXTS, capacity=4)
    return [
        (simplicial.OneSimplicialAttention, "with_virtual", (X, VIRTUAL), {}),
        (simplicial.TwoSimplicialAttention, "keys", (X,), {}),
        (simplicial.TwoSimplicialAttention, "attend", (X, placeholder(TWO, "keys", X)), {}),
        (tp_transformer.TPMultiHeadAttention, "keys_and_values", (X, X), {}),
        (tp_transformer.TPTransformer, "encode", (SOURCE,), {}),
        (tp_transformer.TPTransformer, "decode", (TARGET, encoded, SOURCE != 0), {}),
        (tp_transformer.TPTransformer, "remember", (SOURCE,), {}),
        (tp_transformer.TPTransformer, "step", (TARGET[:, :1], past, np.int32(0), memory_of_source), {}),
        (folnet.FOLNetForCausalLM, "prefill", TEXTS, {"capacity": 8}),
        (folnet.FOLNetForCausalLM, "step", (TEXT[:, 0], written), {}),
        (folnet.FOLNetForConditionalGeneration, "prefill", TEXTS, {"capacity": 4}),
        (folnet.FOLNetForConditionalGeneration, "step", (TEXT[:, 0], begun), {}),
    ]


@pytest.mark.slow
def test_calls_of_the_other_modules_are_linens():
    """And those of cells over sequences."""
    for kind, row in ROWS.items():
        if kind in DEFAULT:
            continue
        check_calls_and_initial_parameters(row)
        if issubclass(kind, nn.RNNCellBase):
            check_over_sequences(row.module)


@pytest.mark.slow  # calls of some modules are default tests
def test_other_methods_are_linens():
    """Decoding, too, whose caches are arguments and results."""
    for kind, method, arguments, options in method_calls():
        row = ROWS[kind]
        params = parameters(row.module, *row.inputs, **row.options)["params"]
        graph, state = nnx.split(in_nnx(row, params))

        def linen(params, arguments, module=row.module, method=method, options=options):
            return module.apply({"params": params}, *arguments, **options, method=method)

        def wrapped(state, arguments, graph=graph, method=method, options=options):
            return getattr(nnx.merge(graph, state), method)(*arguments, **options)

        same_program(linen, (params, arguments), wrapped, (state, arguments))


SOWING = {
    simplicial.Agent: ("transformer", "attention", "standard"),
    tp_transformer.TPMultiHeadAttention: ("roles",),
    memory.NTMCell: ("read_address",),
}


@pytest.mark.parametrize("kind", SOWING, ids=lambda kind: kind.__name__)
def test_intermediates_are_kept_until_they_are_taken(kind):
    row = ROWS[kind]
    model = in_nnx(row)
    _, wanted = jax.eval_shape(
        lambda params: row.module.apply({"params": params}, *row.inputs, mutable=["intermediates"]),
        in_linen(model),
    )

    def kept(calls):
        def run(model):
            for _ in range(calls):
                model(*row.inputs, mutable=["intermediates"])
            taken = nnx.to_pure_dict(nnx.pop(model, nnx.Intermediate))
            assert jax.tree.structure(in_linen(model)) == params
            return taken

        return nnx.eval_shape(run, model)

    params = jax.tree.structure(in_linen(model))
    once, twice = kept(1), kept(2)
    assert jax.tree.map(jnp.shape, once) == jax.tree.map(jnp.shape, wanted["intermediates"])
    for name in SOWING[kind]:
        once, twice = once[name], twice[name]
    assert len(twice) == 2 * len(once) > 0  # linen's sow appends to what the model has kept


def test_wrapped_modules_ignore_train_and_eval():
    """Dropout is an argument of the call, and draws from the streams of the module or of the call."""
    module = tp_transformer.TPMultiHeadAttention(2, dropout_rate=0.5)
    inputs = jnp.asarray(X)

    @nnx.jit
    def run():
        model: Any = bridge.ToNNX(module, rngs=nnx.Rngs(0)).lazy_init(inputs)
        plain = model(inputs)
        model.train()
        trained = model(inputs)
        first, second = (model(inputs, deterministic=False) for _ in range(2))
        again = [model(inputs, deterministic=False, rngs=nnx.Rngs(dropout=1)) for _ in range(2)]
        return plain, trained, first, second, *again

    plain, trained, first, second, *again = run()
    np.testing.assert_array_equal(trained, plain)
    assert np.abs(first - plain).max() > 0.01
    assert np.abs(second - first).max() > 0.01
    np.testing.assert_array_equal(*again)


PAGE = Path(__file__).resolve().parents[1] / "docs" / "how_to" / "nnx.md"


@pytest.mark.slow
def test_the_page_says_what_works(monkeypatch):
    """Runs the page's code from the top and checks what its comments say."""
    monkeypatch.chdir(PAGE.parents[2])
    code = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    found: dict[str, Any] = {}
    exec("\n".join(code), found)  # the repository's own page
    assert found["outputs"].shape == (2, 10, 32)
    assert found["weights"].shape == (2, 4, 10, 10)
    assert found["losses"][-1] < found["losses"][0]
    np.testing.assert_array_equal(found["logits"], found["again"])
    assert found["logits"].shape == (1, 4)
    jax.tree.map(np.testing.assert_array_equal, found["params"], found["trained"].params)
