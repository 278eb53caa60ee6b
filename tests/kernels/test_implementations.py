"""Which implementation a call takes, on every platform and chip, and what it says if there is none."""

import contextlib
import json
import pickle
import sys
import traceback
import types
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export

from kernels import chips, dispatch, implementations, tables
from tests.kernels.noting_kernels import CHIP, MASK, OPERATION, WEIGHT, Config, X, definition, draw, run

pytestmark = pytest.mark.usefixtures("compiled_quickly")


@pytest.fixture
def proven(monkeypatch, tmp_path):
    """A table that says `gpu` is the fastest here; the CPU plays the part of its platform and its chip."""
    line = {"operation": "power_sum", "kind": {"dtype": "float32"}, "sizes": {"N": 5}, "backend": "gpu"}
    tuned = {**line, "direction": "forward", "blocks": {"rows": 7}}
    table = {"chip": "cpu", "fastest": [{**line, "record": "none"}], "blocks": [tuned]}
    (tmp_path / "cpu.json").write_text(json.dumps(table))
    monkeypatch.setattr(tables, "FOLDER", tmp_path)
    monkeypatch.setitem(implementations.HARDWARE, "gpu", "cpu")
    monkeypatch.setattr(chips, "here", lambda platform: CHIP if platform == "cpu" else None)
    tables.read.cache_clear()
    yield
    tables.read.cache_clear()


def test_without_a_record_the_blockwise_path_is_taken(calls):
    np.testing.assert_allclose(run(X, WEIGHT, MASK), definition(Config(), X, WEIGHT, MASK)[0], rtol=1e-6)
    assert {name for name, *_ in calls} == {"xla"}


@pytest.mark.parametrize("name", ["triton", ("xla", "cuda"), ()])
def test_an_unknown_name_lists_the_implementations(calls, name):
    with pytest.raises(
        ValueError, match="'reference', 'xla', 'gpu', 'tpu', 'gpu_interpret', 'tpu_interpret'"
    ):
        run(X, WEIGHT, implementation=name)


@pytest.mark.parametrize("name", ["gpu", "tpu", ("tpu", "gpu")])
def test_a_kernel_named_where_it_cannot_run_is_refused(calls, name):
    with pytest.raises(NotImplementedError, match=r"power_sum.*platform: got 'cpu', expected '"):
        jax.jit(lambda x: run(x, WEIGHT, implementation=name))(X)
    assert not calls


def refusal(function, *arguments) -> Any:
    """The error that a call raises, which must be a NotImplementedError."""
    with pytest.raises(NotImplementedError) as caught:
        function(*arguments)
    return caught.value


WIDE = (draw(4, 9), draw(9))  # more columns than the fake kernels support


def test_one_name_that_does_not_fit_raises_its_own_error(calls):
    error = refusal(lambda: run(*WIDE, implementation="gpu"))
    assert type(error) is NotImplementedError
    assert str(error) == "implementation 'gpu' of power_sum: gpu takes no more than 8 columns"


def test_several_names_that_do_not_fit_raise_one_group_with_the_error_of_each(calls):
    """Raised while the call is traced."""
    names = ("tpu", "gpu")
    error = refusal(jax.eval_shape, lambda x: run(x, WIDE[1], implementation=list(names)), WIDE[0])
    assert isinstance(error, dispatch.NoImplementation)
    assert isinstance(error, ExceptionGroup)
    assert str(error).startswith(
        f"implementation: got {names}, expected one that supports this call of power_sum"
    )
    assert isinstance(error.exceptions, tuple)
    assert [type(each) for each in error.exceptions] == [NotImplementedError] * 2
    for name, each in zip(names, error.exceptions, strict=True):
        assert str(each) == f"implementation {name!r} of power_sum: {name} takes no more than 8 columns"
        assert f"{name}: {name} takes no more than 8 columns" in str(error)


def test_the_group_has_errors_of_arguments_and_of_the_platform(calls, monkeypatch):
    """`gpu` does not fit the arguments, `tpu` fits them and is refused when the call is lowered for a CPU."""
    monkeypatch.setattr(sys.modules["tests.kernels.noting_kernels.tpu"], "plan", lambda *arrays, chip: None)
    error = refusal(jax.jit(lambda *x: run(*x, implementation=("gpu", "tpu"))), *WIDE)
    assert isinstance(error, dispatch.NoImplementation)
    assert [str(each) for each in error.exceptions] == [
        "implementation 'gpu' of power_sum: gpu takes no more than 8 columns",
        "implementation 'tpu' of power_sum: platform: got 'cpu', expected 'tpu'",
    ]
    assert not calls


def test_the_group_prints_pickles_and_splits_as_groups_do(calls):
    error = refusal(lambda: run(*WIDE, implementation=("tpu", "gpu")))
    printed = "".join(traceback.format_exception(error))
    for name in ("tpu", "gpu"):
        assert f"| NotImplementedError: implementation {name!r} of power_sum: {name} takes no more" in printed
    loaded = pickle.loads(pickle.dumps(error))
    assert type(loaded) is dispatch.NoImplementation
    assert str(loaded) == str(error)
    assert list(map(str, loaded.exceptions)) == list(map(str, error.exceptions))
    caught = []
    try:
        raise error
    except* NotImplementedError as group:
        caught.append(group)
    assert caught == [error]
    matching, rest = error.split(lambda each: "'tpu'" in str(each) and each is not error)
    assert type(matching) is type(rest) is dispatch.NoImplementation
    assert (matching.exceptions, rest.exceptions) == (error.exceptions[:1], error.exceptions[1:])


@pytest.mark.parametrize(
    ("names", "taken"),
    [
        (("gpu", "xla"), "xla"),
        (("gpu_interpret", "xla"), "gpu"),
        (("tpu", "gpu", "tpu_interpret", "xla"), "tpu"),
        (("xla", "tpu_interpret"), "xla"),
        ("tpu_interpret", "tpu"),
    ],
)
def test_a_sequence_takes_the_first_that_runs_here(calls, names, taken):
    value, gradient = jax.value_and_grad(lambda x: run(x, WEIGHT, implementation=names).sum())(X)
    assert {name for name, *_ in calls} == {taken}
    assert all(interpret == (taken != "xla") for *_, interpret in calls)
    want = jax.value_and_grad(lambda x: definition(Config(), x, WEIGHT, None)[0].sum())(X)
    np.testing.assert_allclose(value, want[0], rtol=1e-5)
    np.testing.assert_allclose(gradient, want[1], rtol=1e-5)


def test_the_gpu_interpreter_says_what_it_needs(calls, monkeypatch):
    """It would hang, or fail when its turn came."""
    with pytest.raises(ValueError, match="expected 'gpu_interpret' first"):
        run(X, WEIGHT, implementation=("gpu", "gpu_interpret"))
    monkeypatch.setenv("NPROC", "7")
    with pytest.raises(ValueError, match=r"with 7 threads, expected at least 8.*set NPROC=8"):
        run(X, WEIGHT, implementation="gpu_interpret")
    monkeypatch.setenv("NPROC", "8")
    run(X, WEIGHT, implementation="gpu_interpret")


def test_the_reference_after_a_kernel(calls):
    """Also where the choice is made when the call is lowered."""
    got = jax.grad(lambda x: run(x, WEIGHT, MASK, implementation=("gpu", "reference")).sum())(X)
    want = jax.grad(lambda x: run(x, WEIGHT, MASK, implementation="reference").sum())(X)
    np.testing.assert_allclose(got, want, rtol=1e-6)
    assert not calls


def test_a_proven_kernel_is_the_default_with_its_blocks(calls, proven):
    jax.jit(jax.grad(lambda x: run(x, WEIGHT, MASK).sum()))(X)
    assert calls == [("gpu", "forward", {"rows": 7}, False), ("gpu", "backward", None, False)]


def test_an_interpreted_kernel_does_not_take_the_chip_s_blocks(calls, proven):
    run(X, WEIGHT, MASK, implementation="gpu_interpret")
    assert calls == [("gpu", "forward", None, True)]


def test_a_proven_kernel_is_not_the_default_where_the_compiler_partitions(calls, proven):
    """It would have to gather the arguments of the kernel on every device."""
    choice = implementations.Choice(None, ("gpu", "tpu", "xla"))
    arrays = X, WEIGHT, MASK
    taken = [
        implementations.choose(OPERATION, Config(), choice, arrays, platform, CHIP, split)
        for platform, split in (("cpu", False), ("cpu", True), ("tpu", False))
    ]
    assert taken == ["gpu", "xla", "xla"]
    for devices, split in ((None, False), (1, False), (2, True)):
        assert implementations.partitioned(types.SimpleNamespace(num_devices=devices)) == split
    mesh = types.SimpleNamespace(shape={"data": 2, "model": 4})
    for manual, split in (({"data", "model"}, False), ({"data"}, True)):
        context = types.SimpleNamespace(mesh=mesh, manual_axes=manual)
        assert implementations.partitioned(context) == split


def test_a_kernel_named_where_the_compiler_partitions_is_refused(calls):
    """Whether it would be gathered or fail later depends on the platform; in `shard_map` it works."""
    for asked, taken in ((("gpu", "xla"), "xla"), (("gpu",), None)):
        choice = implementations.Choice(asked, asked)
        arguments = OPERATION, Config(), choice, (X, WEIGHT, MASK), "cuda", chips.HOPPER, True
        if taken:
            assert implementations.choose(*arguments) == taken
        else:
            with pytest.raises(NotImplementedError, match=r"compiler partitions.*expected jax.shard_map"):
                implementations.choose(*arguments)


def lowered(function, *arrays, platform, kind=None):
    """Lowers for a platform, and for a kind of chip that need not be here."""
    context = contextlib.nullcontext()
    if kind is not None:
        name = "gpu" if platform == "cuda" else platform
        device = jax.sharding.AbstractDevice(device_kind=kind, num_cores=1, platform=name)
        context = jax.sharding.use_abstract_mesh(jax.sharding.AbstractMesh((), (), abstract_device=device))
    with context:
        return jax.jit(function).trace(*arrays).lower(lowering_platforms=(platform,))


@pytest.mark.parametrize(
    ("platform", "kind", "supported"),
    [
        ("cuda", "NVIDIA A100-SXM4-80GB", "sm90"),
        ("cuda", "NVIDIA GeForce RTX 4090", "sm90"),
        ("cuda", "NVIDIA B200", "sm90"),
        ("cuda", "NVIDIA GeForce RTX 5090", "sm90"),
        ("tpu", "TPU v4", "v5e, v5p, v6e"),
        ("tpu", "TPU7x", "v5e, v5p, v6e"),
    ],
)
def test_chips_without_kernels_are_refused_by_name_and_take_xla(calls, platform, kind, supported):
    name = {"cuda": "gpu", "tpu": "tpu"}[platform]

    def gradient(names):
        return lambda x: jax.grad(lambda x: run(x, WEIGHT, implementation=names).sum())(x)

    with pytest.raises(NotImplementedError, match=rf"chip: got {kind} .*expected one of {supported}"):
        lowered(gradient(name), X, platform=platform, kind=kind)
    assert not calls
    for names in (None, (name, "xla")):
        lowered(gradient(names), X, platform=platform, kind=kind)
    assert {name for name, *_ in calls} == {"xla"}


@pytest.mark.parametrize("kind", ["NVIDIA H200", "NVIDIA H100 80GB HBM3"])
def test_a_sequence_takes_the_first_whose_plan_the_chip_accepts(calls, kind):
    names = ("tpu", "gpu", "xla")
    lowered(lambda x: run(x, WEIGHT, implementation=names), X, platform="cuda", kind=kind)
    assert {name for name, *_ in calls} == {"gpu"}
    calls.clear()
    lowered(lambda *x: run(*x, implementation=names), *WIDE, platform="cuda", kind=kind)
    assert {name for name, *_ in calls} == {"xla"}


@pytest.mark.parametrize("platform", implementations.PLATFORMS)
def test_every_platform_lowers_with_symbolic_sizes(calls, platform):
    batch, columns = export.symbolic_shape("b, n")
    avals = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in ((batch, columns), (columns,))]
    for names in (None, ("tpu", "gpu", "xla"), ("xla", "gpu")):
        function = jax.jit(lambda *x, names=names: run(*x, implementation=names))
        export.export(function, platforms=[platform])(*avals)
    assert {name for name, *_ in calls} == {"xla"}


@pytest.mark.usefixtures("calls")
def test_only_calls_of_known_sizes_are_collected():
    batch = export.symbolic_shape("b")[0]
    for size, number in ((batch, 0), (3, 1)):
        arrays = jax.ShapeDtypeStruct((size, 8), jnp.float32), jax.ShapeDtypeStruct((8,), jnp.float32)
        with implementations.collecting() as collected:
            lowered(run, *arrays, platform="cuda", kind="NVIDIA H200")
        assert len(collected) == number


def test_a_proven_kernel_is_not_the_default_for_other_sizes_and_types(calls, proven):
    jax.jit(run)(draw(4, 11), draw(11))
    jax.jit(run)(X.astype(jnp.bfloat16), WEIGHT.astype(jnp.bfloat16))
    assert {name for name, *_ in calls} == {"xla"}


def test_an_exported_artifact_is_portable_and_runs_here(calls, proven):
    artifact = export.export(jax.jit(run), platforms=["cpu", "cuda", "tpu"])(X, WEIGHT)
    loaded = export.deserialize(artifact.serialize())
    np.testing.assert_allclose(loaded.call(X, WEIGHT), definition(Config(), X, WEIGHT, None)[0], rtol=1e-6)
    assert {name for name, *_ in calls} == {"xla"}


def test_a_kernel_can_be_exported_for_its_platform_only(calls):
    function = jax.jit(lambda x: run(x, WEIGHT, implementation="gpu"))
    export.export(function, platforms=["cuda"])(X)
    assert {name for name, *_ in calls} == {"gpu"}
    with pytest.raises(NotImplementedError, match="platform: got 'cpu', expected 'cuda'"):
        export.export(function, platforms=["cuda", "cpu"])(X)
