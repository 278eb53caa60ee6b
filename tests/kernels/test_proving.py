"""Kernels are proven before they are used: right ones that are faster are taken, all others never."""

import importlib
import json
import threading
import time
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import kernels
from kernels import chips, implementations, proofs, prove, proving
from tests.kernels import fake_kernels
from tests.kernels.fake_kernels import CHIP, OPERATION, Config

SHAPES = jax.ShapeDtypeStruct((3, 5), jnp.float32), jax.ShapeDtypeStruct((5,), jnp.float32)
X, WEIGHT = (jnp.asarray(np.random.default_rng(0).normal(size=s.shape), s.dtype) for s in SHAPES)
MASK = jax.ShapeDtypeStruct((3, 5), jnp.bool_)


@pytest.fixture(autouse=True)
def _chip(monkeypatch, tmp_path):
    """Makes believe that this process runs on a chip with kernels, where nothing is proven."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setitem(implementations.HARDWARE, "gpu", "cpu")
    monkeypatch.setattr(proving, "BLOCKS", 2)
    monkeypatch.setattr(proving, "BLOCK_SECONDS", 0.01)
    monkeypatch.setattr(chips, "at_hand", lambda: CHIP)
    monkeypatch.setattr(chips, "here", lambda platform: CHIP if platform == "cpu" else None)
    jax.clear_caches()
    yield
    jax.clear_caches()


@pytest.fixture
def in_this_process(monkeypatch):
    monkeypatch.setattr(proving, "_in_a_process", proving._in_a_thread)


def call(temper: fake_kernels.Temper = "right", mask=None):
    return proving.Call(OPERATION, Config(temper), (*SHAPES, mask))


def taken(temper: fake_kernels.Temper = "right"):
    """Whether a call without a name takes the kernel, which the wrong ones would show."""
    text = jax.jit(lambda x, w: fake_kernels.run(x, w, temper=temper)).lower(X, WEIGHT).as_text()
    return "callback" not in text  # the blockwise path has one


@pytest.mark.usefixtures("in_this_process")
@pytest.mark.parametrize("mask", [None, MASK])
def test_a_right_and_faster_kernel_is_taken_from_then_on(mask):
    assert not taken()
    proof = proving.prove_call(call(mask=mask), CHIP)
    assert proof.state == "passed"
    assert min(proof.speedup.values()) > 1.5
    assert len(proof.errors) == 3
    assert all(one < 1e-6 for pair in proof.errors for one in pair)
    assert taken() == (mask is None)  # the proof is for such a call only
    other = jax.jit(fake_kernels.run).lower(X[:2], WEIGHT).as_text()
    assert "callback" in other  # nor for other sizes


@pytest.mark.usefixtures("in_this_process")
@pytest.mark.parametrize(
    ("temper", "reason"),
    [
        ("wrong", "the error of its output is 1.0e-03 relative to float64, that of xla"),
        ("wrong gradient", "the error of its gradient 1 is"),
        ("not a number", "the error of its output is"),
        ("raising", "ValueError: no such instruction"),
    ],
)
def test_a_kernel_that_fails_is_reported_once_and_never_taken(temper, reason):
    with pytest.warns(kernels.KernelFailed, match="will not be used") as caught:
        proof = proving.prove_call(call(temper), CHIP)
    assert len(caught) == 1
    assert proof.state == "failed"
    assert proof.reason.startswith(reason)
    assert proving.prove_call(call(temper), CHIP) == proof  # known, and not reported again
    assert not taken(temper)


@pytest.mark.usefixtures("in_this_process")
@pytest.mark.parametrize(("temper", "state"), [("right", "passed"), ("wrong gradient", "failed")])
def test_errors_are_measured_where_squares_exceed_float16(temper, state):
    """A gradient of 150,000 numbers has a squared norm beyond 65,504."""
    x, weight = jax.ShapeDtypeStruct((300, 500), jnp.float16), jax.ShapeDtypeStruct((500,), jnp.float16)
    one = proving.Call(OPERATION, Config(temper), (x, weight, None))
    assert proving.examined(one, CHIP)["state"] == state


def test_what_kernels_are_compared_with_has_64_bits():
    arrays, cotangent = proving.drawn(call())
    found = proving.in_float64(call(), arrays, cotangent)
    assert {array.dtype for array in found} == {np.dtype("float64")}


@pytest.mark.usefixtures("in_this_process")
def test_a_slow_kernel_passes_but_is_not_taken():
    proof = proving.prove_call(call("slow"), CHIP)
    assert proof.state == "passed"
    assert not proof.use
    assert taken("slow")  # the blockwise path, which has no callback here
    text = jax.jit(lambda x, w: fake_kernels.run(x, w, temper="slow", implementation="gpu")).lower(X, WEIGHT)
    assert "callback" in text.as_text()


@pytest.mark.usefixtures("in_this_process")
def test_blocks_are_compared_with_their_neighbours(monkeypatch):
    """A slow moment of the machine, in which both are slow, refuses no kernel."""

    def alternate(calls, **_):
        return {name: [1.0, 2.0] if name == "xla" else [0.8, 1.0] for name in calls}

    monkeypatch.setattr(proving.timing, "alternate", alternate)
    proof = proving.prove_call(call(), CHIP)
    assert proof.speedup == {"forward": 1.25, "both": 1.25}
    assert proof.use


def test_a_kernel_that_hangs_is_given_up():
    start = time.monotonic()
    with pytest.warns(kernels.KernelFailed, match="did not end within 2 s .it was running the gpu kernel"):
        proof = proving.prove_call(call("hanging"), CHIP, seconds=2, isolated=False)
    assert time.monotonic() - start < 30
    assert proof.state == "failed"
    fake_kernels.RELEASED.set()
    for thread in threading.enumerate():  # one that ends with the process takes JAX down
        if thread.name == proving.THREAD:
            thread.join()
    assert not taken("hanging")


@pytest.mark.slow  # processes that start JAX
def test_in_a_process_of_its_own(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(proofs.Path(__file__).resolve().parents[2]))
    for temper, seconds, reason in (
        ("right", 100, ""),
        ("hanging", 15, "it did not end within 15 s (it was running the gpu kernel)"),
        ("crashing", 100, "its process ended with 11"),
    ):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", kernels.KernelFailed)
            proof = proving.prove_call(call(temper), CHIP, seconds=seconds)
        assert proof.reason.startswith(reason)
        assert (proof.state == "passed") == (temper == "right")


def test_a_proof_that_took_its_process_down_counts_as_failed():
    kind, sizes = OPERATION.describe(Config(), *SHAPES, None)
    proofs.append(CHIP.kind, proofs.Proof(OPERATION.name, kind, sizes, "gpu", "began"))
    assert not taken()
    assert proving.prove_call(call(), CHIP).state == "began"  # not tried again, unless asked to
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(proving, "_in_a_process", proving._in_a_thread)
        assert proving.prove_call(call(), CHIP, again=True).state == "passed"


def test_the_file_is_for_a_chip_a_jaxlib_and_a_source(monkeypatch):
    first = proofs.path(CHIP.kind)
    assert proofs.path("another chip") != first
    monkeypatch.setattr(proofs, "source", lambda: "changed")
    second = proofs.path(CHIP.kind)
    monkeypatch.setattr(proofs.importlib.metadata, "version", lambda name: "9.9")
    assert len({first, second, proofs.path(CHIP.kind)}) == 3


def test_an_interrupted_proof_leaves_nothing_known(monkeypatch):
    """Nothing was found out about the kernel, so that the next time it is tried."""

    def interrupted(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(proving, "_in_a_process", interrupted)
        with pytest.raises(KeyboardInterrupt):
            proving.prove_call(call(), CHIP)
    monkeypatch.setattr(proving, "_in_a_process", proving._in_a_thread)
    assert proving.prove_call(call(), CHIP).state == "passed"


def test_a_call_that_the_kernel_does_not_support_is_said_to_take_xla(monkeypatch, capsys):
    program = importlib.import_module("kernels.prove")
    passed = proofs.Proof("trans", {}, {}, "gpu", "passed", {"forward": 2.0, "both": 1.5}, ((1e-6, 1e-6),))
    monkeypatch.setattr(proving, "prove", lambda call, **_: [passed] if call == "first" else [])
    assert program.main(["first", "second"]) == 0
    first, second, _ = capsys.readouterr().out.splitlines()
    assert first == proving.describe(passed)
    assert second == "second: the chip's kernel does not support it; it takes xla"


def test_half_a_line_and_lines_of_other_programs_are_passed_over():
    kind, sizes = OPERATION.describe(Config(), *SHAPES, None)
    proof = proofs.Proof(OPERATION.name, kind, sizes, "gpu", "passed", {"forward": 2.0, "both": 1.5})
    proofs.path(CHIP.kind).parent.mkdir(parents=True, exist_ok=True)
    proofs.path(CHIP.kind).write_text('{"operation": "square_su')  # and no end of the line
    proofs.append(CHIP.kind, proof)
    with proofs.path(CHIP.kind).open("a") as file:
        file.write('[1, 2]\n{"x": 1}\n')
    assert proofs.find(CHIP.kind, OPERATION.name, kind, sizes, "gpu") == proof
    assert proof.use
    assert taken()
    (_, line, *_) = proofs.path(CHIP.kind).read_text().splitlines()
    assert json.loads(line)["chip"] == CHIP.kind


@pytest.mark.usefixtures("in_this_process")
def test_proofs_that_cannot_be_kept_are_still_returned(monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", "/dev/null")
    with pytest.warns(UserWarning, match="proofs are not kept"):
        assert proving.prove_call(call(), CHIP).state == "passed"


@pytest.mark.usefixtures("in_this_process")
def test_every_call_of_a_program_is_proven():
    def program(x, weight):
        one = jax.vmap(fake_kernels.run, (0, None))(jnp.stack([x, x + 1]), weight).sum()
        return one + fake_kernels.run(x, weight) + fake_kernels.run(2 * x, weight, implementation="xla").sum()

    found = prove(jax.value_and_grad(lambda *x: program(*x).sum()), *SHAPES)
    assert [proof.sizes for proof in found] == [{"B": 6, "N": 5}, {"B": 3, "N": 5}]
    assert prove(lambda x, w: fake_kernels.run(x, w), *SHAPES) == found[1:]
    assert taken()


@pytest.mark.usefixtures("in_this_process")
def test_the_environment_asks_for_a_proof_at_the_first_call(monkeypatch):
    monkeypatch.setenv("LOGIC_ZOO_PROVE", "0")
    assert not taken()
    monkeypatch.setenv("LOGIC_ZOO_PROVE", "1")
    jax.clear_caches()
    assert taken()
    monkeypatch.delenv("LOGIC_ZOO_PROVE")
    jax.clear_caches()
    assert taken()


def test_a_kernel_that_does_not_fit_is_not_tried():
    wide = jnp.ones((3, 9)), jnp.ones(9)
    with pytest.raises(NotImplementedError, match="shared memory: forward needs 270,000 bytes"):
        fake_kernels.run(*wide, implementation="gpu")
    assert prove(fake_kernels.run, *wide) == []


def test_a_chip_without_kernels_has_nothing_to_prove(monkeypatch):
    monkeypatch.setattr(chips, "at_hand", lambda: chips.named("TPU v4", "tpu"))
    assert prove(fake_kernels.run, X, WEIGHT) == []


@pytest.mark.parametrize(
    "text",
    [
        "trans",
        "trans(2)",
        "trans(float31[2,3])",
        "attention(float32[2])",
        "trans(float32[2,3], mask=open('x'))",
    ],
)
def test_a_call_in_text_that_cannot_be_read(text):
    with pytest.raises(ValueError, match=r"call: got .*, expected one of two_simplicial_attention, trans"):
        prove(text)


def test_calls_in_text():
    (found,) = proving.calls_of(
        proving.parsed("trans(bfloat16[2,3,4], mask=bool[3,4], premise=bfloat16[2,4,5])")
    )
    assert found.operation.name == "trans"
    assert [x and (x.shape, str(x.dtype)) for x in found.avals] == [
        ((1, 2, 3, 4), "bfloat16"), ((1, 2, 4, 5), "bfloat16"), ((1, 1, 3, 4), "bool"),
    ]  # fmt: skip
    for text in proving.MODELS:
        proving.parsed(text)


def test_a_shape_of_one_axis_in_text():
    _, (arrays, _), _ = proving.parsed("trans(float32[3], float32[3,3])")
    assert [x.shape for x in arrays] == [(3,), (3, 3)]


def test_the_program_works_as_a_process_of_a_proof(monkeypatch, tmp_path):
    given = []
    monkeypatch.setattr(proving, "work", given.append)
    program = importlib.import_module("kernels.prove")
    assert program.main(["--worker", str(tmp_path / "call")]) == 0
    assert given == [tmp_path / "call"]
