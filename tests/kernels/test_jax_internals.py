"""`kernels/_jax_internals.py`: nothing else uses `jax._src`, and JAX still has what it takes from there.

A failure after an upgrade of JAX says what to look for in JAX and what to replace here.
"""

from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

ROOT = Path(__file__).resolve().parents[2]
INTERNALS = "kernels/_jax_internals.py"

CHECK_VMA = f"""jax._src.config._check_vma does not work in jax {jax.__version__} as it did in 0.12.0.

It is the context manager that turns off the check of jax.shard_map(..., check_vma=True) while the program of
one device is traced. Look in JAX's change log for `check_vma` and `manual_axis_type`, and in
jax/_src/pallas/pallas_call.py for what now surrounds the tracing of a kernel's body. Use that in
`without_manual_axis_checks` of {INTERNALS}. If JAX has a public function for it, or no longer checks what is
lowered, change `_lower` of kernels/dispatch.py and delete {INTERNALS}. Then raise the bound of jax in
pyproject.toml."""


def varying_axes() -> list[frozenset]:
    """The axes over which a device's index varies by its type, with the check of `shard_map` and without."""
    from kernels import _jax_internals

    found = []

    def program(x):
        found.append(jax.typeof(jax.lax.axis_index("data")).manual_axis_type.varying)
        with _jax_internals.without_manual_axis_checks():
            found.append(jax.typeof(jax.lax.axis_index("data")).manual_axis_type.varying)
        return x

    mesh = jax.make_mesh((1,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
    spec = jax.P("data")
    jax.eval_shape(jax.shard_map(program, mesh=mesh, in_specs=spec, out_specs=spec), jnp.zeros(1))
    return found


def test_the_check_of_manual_axes_can_be_turned_off():
    try:
        found = varying_axes()
    except Exception as error:
        pytest.fail(f"{CHECK_VMA}\n\n{error!r}")
    assert found == [frozenset({"data"}), frozenset()], CHECK_VMA


def test_no_other_file_uses_the_internals_of_jax():
    """Outside tests, which may look inside JAX to check what it was given."""
    folders = [
        path for path in ROOT.iterdir() if path.is_dir() and path.name[0] != "." and path.name != "tests"
    ]
    files = [*ROOT.glob("*.py"), *(file for folder in folders for file in folder.rglob("*.py"))]
    using = {
        str(file.relative_to(ROOT)) for file in files if uses_internals(file.read_text(encoding="utf-8"))
    }
    assert using == {INTERNALS}


def uses_internals(text: str) -> bool:
    """Whether a module's text names `jax._src` or a private module of jaxlib."""
    return any(name in text for name in ("jax._src", "from jax import _src", "jaxlib._"))


def test_a_use_is_seen():
    """The check above would notice."""
    assert uses_internals("from jax._src import core")
    assert not uses_internals("from jax import core")
