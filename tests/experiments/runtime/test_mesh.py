"""The mesh: which arrays are split or replicated, and which settings are invalid."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AbstractMesh, AxisType, PartitionSpec

from experiments.runtime import mesh


def test_the_mesh_spans_all_devices():
    made = mesh.Layout().mesh()
    assert made.shape == {"data": jax.device_count()}
    assert made.axis_types == (AxisType.Auto,)


@pytest.fixture
def made(monkeypatch):
    """Returns the settings of JAX that are changed, without changing them."""
    found = []
    monkeypatch.setattr(type(jax.config), "update", lambda config, *setting: found.append(setting))
    monkeypatch.delenv("XLA_FLAGS", raising=False)
    return found


def test_cores_become_devices(made):
    assert mesh.split_cores(3)
    assert made == [("jax_num_cpu_devices", 3)]


def test_one_device_of_all_cores_is_no_setting(made):
    assert not mesh.split_cores(1)
    with pytest.raises(ValueError, match="count: got 0 devices for the cores, expected at least 1"):
        mesh.split_cores(0)
    assert not made


def test_the_environment_decides_if_it_names_devices(made, monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", f"--a=1 --{mesh.HOST_DEVICES}=4")
    assert not mesh.split_cores(2)
    monkeypatch.setenv("XLA_FLAGS", "--a=1")
    assert mesh.split_cores(2)
    monkeypatch.setattr(type(jax.config), "jax_num_cpu_devices", 3, raising=False)
    assert not mesh.split_cores(2)
    assert len(made) == 1


def test_one_of_several_processes_keeps_its_devices(made, monkeypatch):
    monkeypatch.setattr(jax.distributed, "is_initialized", lambda: True)
    assert not mesh.split_cores(2)
    assert not made


def test_devices_that_exist_remain():
    before = jax.device_count()
    assert not mesh.split_cores(2)
    assert jax.device_count() == before


def test_the_axes_of_a_mesh_share_all_devices(monkeypatch):
    made = []
    monkeypatch.setattr(jax, "device_count", lambda: 8)
    monkeypatch.setattr(jax, "make_mesh", lambda sizes, names, axis_types: made.append((sizes, names)))
    for layout in (mesh.Layout(), mesh.Layout(model=2), mesh.Layout(data=2, model=4)):
        layout.mesh()
    assert made == [((8,), ("data",)), ((4, 2), ("data", "model")), ((2, 4), ("data", "model"))]


def test_arrays_are_split_and_scalars_copied():
    batch = {"x": np.zeros((8, 3)), "length": np.int32(4), "mask": np.zeros(8)}
    assert mesh.batch_specs(batch) == {
        "x": PartitionSpec("data"),
        "length": PartitionSpec(),
        "mask": PartitionSpec("data"),
    }


def test_the_batch_has_its_size():
    mesh.check_batch({"x": jnp.zeros((8, 3)), "length": jnp.int32(4)}, 8)
    with pytest.raises(ValueError, match=r"batch\['y'\]\[1\]: got shape \(3, 8\), .* batch_size=8"):
        mesh.check_batch({"y": (jnp.zeros(8), jnp.zeros((3, 8)))}, 8)


def test_the_batch_divides_and_the_mesh_has_all_devices():
    mesh.Layout("pmap").check(16, 8)
    mesh.Layout("jit", data=4, model=2).check(12, 8)
    mesh.Layout("jit", model=2).check(12, 8)
    for layout, message in [
        (mesh.Layout("jit"), "batch_size: got 12, expected a multiple of 8, the number of devices"),
        (
            mesh.Layout("jit", model=4, data=2),
            r"mesh: got data:2,model:4 for 8 devices, expected",
        ),
        (mesh.Layout("jit", model=3), "mesh: got data:1,model:3 for 3 devices, expected sizes for 4"),
        (mesh.Layout("jit", data=5, model=1), "mesh: got data:5,model:1 for 5 devices, expected sizes for 4"),
    ]:
        devices = 8 if layout == mesh.Layout("jit") else 4
        with pytest.raises(ValueError, match=message):
            layout.check(12, devices)
    with pytest.raises(ValueError, match=r"batch_size: got 7, expected a multiple of 4, .* along data"):
        mesh.Layout("jit", model=2).check(7, 8)
    for batch, nearest in ((20, "16 or 24"), (7, "8")):
        with pytest.raises(ValueError, match=rf"\(for example {nearest}\)"):
            mesh.Layout("jit").check(batch, 8)


def test_a_mesh_has_at_least_one_device_along_each_axis():
    for data, model in ((-1, 1), (1, 0)):
        with pytest.raises(ValueError, match="expected at least one along each axis"):
            mesh.Layout("jit", data, model)


def test_each_of_several_processes_has_whole_examples(monkeypatch):
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    mesh.Layout("jit", data=2, model=2).check(8, 4)
    with pytest.raises(
        ValueError, match=r"mesh: got model:4, expected a divisor of 2, the devices per process"
    ):
        mesh.Layout("jit", data=1, model=4).check(8, 4)


def test_flags_are_read():
    assert mesh.Layout.parse("jit") == mesh.Layout.of("jit") == mesh.Layout()
    assert mesh.Layout.parse("jit", "data:4,model:2", True) == mesh.Layout("jit", 4, 2, True)
    assert mesh.Layout.parse("jit", "model:2") == mesh.Layout("jit", 0, 2)
    assert str(mesh.Layout("jit", 4, 2, True)) == "jit data:4,model:2 fsdp"
    assert (str(mesh.Layout("pmap")), str(mesh.Layout(model=2))) == ("pmap", "jit model:2")
    assert str(mesh.Layout(data=1)) == "jit data:1"
    layout = mesh.Layout(fsdp=True)
    assert mesh.Layout.of(layout) is layout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("tpu",), "parallel: got 'tpu', expected one of 'jit', 'shard_map', 'pmap'"),
        (("jit", "data=4"), "mesh: got 'data=4' in 'data=4', expected sizes such as data:4,model:2"),
        (("jit", "data:0"), "mesh: got 'data:0' in"),
        (("jit", "rows:2"), "mesh: got 'rows:2' in"),
        (("pmap", "model:2"), "parallel: got 'pmap', expected 'jit' with model:2"),
        (("shard_map", "", True), "parallel: got 'shard_map', expected 'jit' with fsdp"),
    ],
)
def test_flags_that_say_nothing_sensible_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        mesh.Layout.parse(*arguments)


def test_matrices_are_split_along_their_longest_axis_that_fits():
    devices = AbstractMesh((4,), ("data",))
    shapes = {
        "matrix": jnp.zeros((8, 12)),
        "square": jnp.zeros((8, 8)),
        "odd": jnp.zeros((3, 16, 5)),
        "none": jnp.zeros((3, 5)),
        "bias": jnp.zeros(8),
        "count": jnp.int32(0),
        "empty": jnp.zeros((0, 3)),
    }
    found = mesh.Layout(fsdp=True).state_shardings(devices, shapes)
    assert {name: sharding.spec for name, sharding in found.items()} == {
        "matrix": PartitionSpec(None, "data"),
        "square": PartitionSpec("data", None),
        "odd": PartitionSpec(None, "data", None),
        "none": PartitionSpec(),
        "bias": PartitionSpec(),
        "count": PartitionSpec(),
        "empty": PartitionSpec(),
    }
    copied = mesh.Layout().state_shardings(devices, shapes)
    assert {sharding.spec for sharding in copied.values()} == {PartitionSpec()}
