"""The mesh: what is split, what is copied, what is refused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, PartitionSpec

from experiments.runtime import mesh


def test_the_mesh_spans_all_devices():
    made = mesh.data_mesh()
    assert made.shape == {"data": jax.device_count()}
    assert made.axis_types == (AxisType.Auto,)


def test_arrays_are_split_and_scalars_copied():
    batch = {"x": np.zeros((8, 3)), "length": np.int32(4), "mask": np.zeros(8)}
    assert mesh.batch_specs(batch) == {
        "x": PartitionSpec("data"),
        "length": PartitionSpec(),
        "mask": PartitionSpec("data"),
    }


def test_the_batch_has_its_size():
    mesh.check_batch({"x": jnp.zeros((8, 3)), "length": jnp.int32(4)}, 8)
    with pytest.raises(ValueError, match=r"batch\['y'\]\[1\] has shape \(3, 8\): .* batch_size=8"):
        mesh.check_batch({"y": (jnp.zeros(8), jnp.zeros((3, 8)))}, 8)


def test_the_mode_is_known_and_the_batch_divides():
    mesh.check_parallel("pmap", 16, 8)
    with pytest.raises(ValueError, match="parallel='tpu' is not one of jit, shard_map, pmap"):
        mesh.check_parallel("tpu", 16, 8)
    with pytest.raises(ValueError, match="batch_size=12 must be a multiple of the number of devices, 8"):
        mesh.check_parallel("jit", 12, 8)
