"""PyTorch's training takes our course, if PyTorch is installed, and another optimizer is noticed."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from benchmarks.peers.training import measuring, subjects
from experiments.folnet_pretrain import optimizer
from simplicial import impala

torch = pytest.importorskip("torch")

from benchmarks.peers.training import torch_optimizers, torch_steps  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")  # theirs
SMALL = subjects.subjects(subjects.SMALL)
FIRST, *OTHERS = SMALL
EVERY = [FIRST, *(pytest.param(name, marks=pytest.mark.slow) for name in OTHERS)]


@functools.cache
def expected(name):
    """Returns a subject with our initial parameters and our course."""
    subject = SMALL[name]()
    program = subject.start()
    start = program.params()
    return subject, start, measuring.course(program, start, subject.batches)


def compared(name, word, **fields):
    """Compares PyTorch's course with ours, on the subject with other fields."""
    subject, start, ours = expected(name)
    subject = dataclasses.replace(subject, **fields)
    (make,) = (make for key, make in torch_steps.programs(subject).items() if key.endswith(word))
    found = measuring.course(make(start), start, subject.batches)
    return measuring.compared(found, ours, subject.without_effect)


@pytest.mark.parametrize("name", EVERY)
def test_twenty_steps(name):
    facts = compared(name, "eager")
    assert facts["difference"] < 1e-4
    assert facts["change_difference"] < 1e-3
    assert "differs" not in facts


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALL)
def test_twenty_compiled_steps(name):
    assert "differs" not in compared(name, "compiled")


@pytest.mark.parametrize(
    ("name", "setting", "value"),
    [
        (FIRST, "lr", 1.05e-3),
        (FIRST, "momentum", 0.8),
        (FIRST, "clip", 0.1),
        *(
            pytest.param(name, setting, value, marks=pytest.mark.slow)
            for name, setting, value in (
                ("relational agent", "epsilon", 0.12),
                ("relational agent", "initial", 0.0),
                ("simplicial agent", "clip", 0.1),
                ("TP-Transformer", "lr", 1.05e-4),
                ("FOLNet", "rising", 40),
                ("FOLNet", "weight_decay", 1.0),
            )
        ),
    ],
)
def test_another_optimizer_is_noticed(name, setting, value):
    settings = {**expected(name)[0].optimizer, setting: value}
    assert "differs" in compared(name, "eager", optimizer=settings)


@pytest.mark.slow
def test_another_loss_is_noticed():
    settings = {**expected("relational agent")[0].loss, "entropy_cost": 0.0}
    assert "differs" in compared("relational agent", "eager", loss=settings)


def trained(of_ours, make):
    """Returns the parameters after six steps with random gradients, by our optimizer and by theirs."""
    rng = np.random.default_rng(0)
    arrays = {"kernel": rng.standard_normal((4, 3), np.float32), "bias": rng.standard_normal(3, np.float32)}
    params, state = jax.tree.map(jnp.asarray, arrays), of_ours.init(arrays)
    theirs = {name: torch.nn.Parameter(torch.from_numpy(array.copy())) for name, array in arrays.items()}
    step = make(theirs.values())
    for _ in range(6):
        gradients = {name: rng.standard_normal(array.shape, np.float32) for name, array in arrays.items()}
        updates, state = of_ours.update(gradients, state, params)
        params = optax.apply_updates(params, updates)
        for name, parameter in theirs.items():
            parameter.grad = torch.from_numpy(gradients[name])
        step.step()
    return params, {name: parameter.detach().numpy() for name, parameter in theirs.items()}


@pytest.mark.parametrize(
    ("ours", "make"),
    [
        (
            impala.optimizer(0.1, max_norm=1e9),
            functools.partial(torch_optimizers.RMSProp, lr=0.1, decay=0.99, epsilon=0.1, initial=1.0),
        ),
        (
            optax.rmsprop(0.1, decay=0.9, momentum=0.9),
            functools.partial(
                torch_optimizers.RMSProp, lr=0.1, decay=0.9, epsilon=1e-8, initial=0.0, momentum=0.9
            ),
        ),
        (
            optax.adam(0.1, 0.9, 0.995),
            functools.partial(torch_optimizers.adam, lr=0.1, betas=(0.9, 0.995)),
        ),
        (
            optimizer.lamb(optimizer.schedule("linear", 0.1, 9, 0.3), weight_decay=0.1, clip=0.0),
            functools.partial(
                torch_optimizers.LAMB,
                lr=0.1,
                steps=9,
                rising=3,
                betas=(0.9, 0.999),
                eps=1e-6,
                weight_decay=0.1,
            ),
        ),
    ],
    ids=["RMSProp", "RMSProp with momentum", "Adam", "LAMB"],
)
def test_optimizers(ours, make):
    expected, found = trained(ours, functools.partial(make, compiled=False))
    for name, array in expected.items():
        np.testing.assert_allclose(found[name], array, rtol=1e-5, atol=1e-6)


def test_a_parameter_without_a_gradient_stays():
    used, unused = (torch.nn.Parameter(torch.ones(2, 2)) for _ in range(2))
    settings = {"lr": 0.1, "steps": 9, "rising": 1, "betas": (0.9, 0.999), "eps": 1e-6, "weight_decay": 0.1}
    step = torch_optimizers.LAMB([used, unused], compiled=False, **settings)
    used.grad = torch.ones(2, 2)
    step.step()
    assert (used < 1).all()
    assert (unused == 1).all()
