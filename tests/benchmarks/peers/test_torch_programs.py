"""The architectures in PyTorch give our results, forward and backward, if PyTorch is installed."""

import functools

import numpy as np
import pytest

from benchmarks.peers import comparing, subjects

torch = pytest.importorskip("torch")

from benchmarks.peers import torch_programs, torch_running  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")  # theirs
SMALL = subjects.subjects(subjects.SMALL)
LUCIDRAINS = [name for name in SMALL if name.startswith(("trilinear", "signed"))]


@functools.cache
def expected(name):
    """Returns a subject with our results."""
    subject = SMALL[name]()
    ours = comparing.JaxProgram(subject)
    return subject, {d: ours.arrays(d, ours.call(d)()) for d in comparing.DIRECTIONS}


def check(name, side, word):
    """Compares all programs of a subject with ours."""
    subject, found = expected(name)
    programs = {key: make for key, make in side.programs(subject).items() if key.endswith(word)}
    assert programs
    for make in programs.values():
        program = make()
        for direction in comparing.DIRECTIONS:
            arrays = program.arrays(direction, program.call(direction)())
            apart = comparing.difference(arrays, found[direction])
            assert apart.greatest < 5e-5, apart


@pytest.mark.parametrize("name", [name for name in SMALL if name not in LUCIDRAINS])
def test_eager(name):
    check(name, torch_programs, "eager")


@pytest.mark.parametrize("name", LUCIDRAINS)
def test_simplicial_attention(name):
    pytest.importorskip("simplicial_attention")
    from benchmarks.peers import lucidrains  # it imports theirs

    check(name, lucidrains, "eager")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["trans, odd", "FOLNet layer", "Neural Turing Machine"])
def test_compiled(name):
    check(name, torch_programs, "compiled")


def test_another_weight_is_seen():
    subject, found = expected("TP attention")
    program = torch_programs.programs(subject)["PyTorch, eager"]()
    with torch.no_grad():
        program.module.role.bias[0] += 0.01  # pyrefly: ignore[missing-attribute]
    arrays = program.arrays("forward", program.call("forward")())
    assert comparing.difference(arrays, found["forward"])[0] > comparing.TOLERANCE["forward"]


def test_parameters_of_one_side_only_are_refused():
    subject, _ = expected("TP attention")
    with pytest.raises(ValueError, match=r"one side lacks .*role"):
        torch_running.TorchProgram(subject, torch.nn.Linear(2, 2), compiled=False)


def test_gradients_are_not_summed_up_over_calls():
    subject, found = expected("trans, odd")
    program = torch_programs.programs(subject)["PyTorch, eager"]()
    call = program.call("gradient")
    call()
    assert comparing.difference(program.arrays("gradient", call()), found["gradient"])[0] < 1e-5


@pytest.mark.parametrize(
    ("path", "shape", "name", "axes"),
    [
        ("a/kernel", (2, 3), "a.weight", (1, 0)),
        ("a/b/weight", (2, 3), "a.b.weight", (1, 0)),
        ("conv/kernel", (2, 2, 3, 4), "conv.weight", (3, 2, 0, 1)),
        ("norm/scale", (3,), "norm.weight", None),
        ("norm/bias", (3,), "norm.bias", None),
        ("bilinear", (1, 2, 2, 2), "bilinear", None),
    ],
)
def test_names(path, shape, name, axes):
    assert torch_running.torch_name(path, np.zeros(shape)) == (name, axes)
