"""A pytest plugin, `-p tests.typed`: kernels and papers' packages with every annotation checked at run time.

jaxtyping's import hook, with beartype, checks the shapes, dtypes and classes of each call's arguments and
result. A test that expects an error gets jaxtyping's instead of the function's own message, and is skipped:
without this plugin it runs.

Dataclasses that are pytrees are checked when they are constructed, but not when JAX rebuilds them from
leaves: these may be NumPy arrays, shapes, shardings or placeholders.
"""

import jax
import jaxtyping
import pytest

PACKAGES = ("kernels", "simplicial", "tp_transformer", "folnet", "llrnn")


def _register_dataclass(nodetype, data_fields, meta_fields):
    """Replaces `jax.tree_util.register_dataclass`, as used by `flax.struct`; skips the constructor."""

    def flatten_with_keys(x):
        children = tuple((jax.tree_util.GetAttrKey(name), getattr(x, name)) for name in data_fields)
        return children, tuple(getattr(x, name) for name in meta_fields)

    def unflatten(meta, data):
        x = object.__new__(nodetype)
        for name, value in zip((*data_fields, *meta_fields), (*data, *meta), strict=True):
            object.__setattr__(x, name, value)
        return x

    jax.tree_util.register_pytree_with_keys(nodetype, flatten_with_keys, unflatten)
    return nodetype


jax.tree_util.register_dataclass = _register_dataclass  # pyrefly: ignore
jaxtyping.install_import_hook(PACKAGES, "beartype.beartype")

_exit = pytest.RaisesExc.__exit__


def _skips_bad_input(self, exc_type, exc_val, exc_tb):
    if isinstance(exc_val, jaxtyping.TypeCheckError):
        pytest.skip("expects an error for bad input, which the type checker raised first")
    return _exit(self, exc_type, exc_val, exc_tb)


def pytest_configure(config):
    """Makes `pytest.raises` skip a test whose bad input the type checker refuses."""
    pytest.RaisesExc.__exit__ = _skips_bad_input
