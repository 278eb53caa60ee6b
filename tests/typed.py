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
from beartype import BeartypeConf, beartype

PACKAGES = ("kernels", "simplicial", "tp_transformer", "folnet", "llrnn")


_register = jax.tree_util.register_dataclass


def _register_dataclass(nodetype, data_fields=None, meta_fields=None, **options):
    """Replaces `jax.tree_util.register_dataclass`, as used by `flax.struct`; skips the constructor."""
    if data_fields is None or meta_fields is None or nodetype.__module__.split(".")[0] not in PACKAGES:
        return _register(nodetype, data_fields, meta_fields, **options)
    data_names, meta_names = tuple(data_fields), tuple(meta_fields)

    def flatten_with_keys(x):
        children = tuple((jax.tree_util.GetAttrKey(name), getattr(x, name)) for name in data_names)
        return children, tuple(getattr(x, name) for name in meta_names)

    def unflatten(meta, data):
        x = object.__new__(nodetype)
        for name, value in zip((*data_names, *meta_names), (*data, *meta), strict=True):
            object.__setattr__(x, name, value)
        return x

    jax.tree_util.register_pytree_with_keys(nodetype, flatten_with_keys, unflatten)
    return nodetype


jax.tree_util.register_dataclass = _register_dataclass  # pyrefly: ignore
# As static type checkers have it (PEP 484), an int may be passed where a float is annotated.
checked = beartype(conf=BeartypeConf(is_pep484_tower=True))
jaxtyping.install_import_hook(PACKAGES, "tests.typed.checked")

_exit = pytest.RaisesExc.__exit__


def _skips_bad_input(self, exc_type, exc_val, exc_tb):
    if isinstance(exc_val, jaxtyping.TypeCheckError):
        pytest.skip("expects an error for bad input, which the type checker raised first")
    return _exit(self, exc_type, exc_val, exc_tb)


def pytest_addoption(parser):
    """Adds `--cases=N`, which `make typed` sets to fit into minutes."""
    parser.addoption("--cases", type=int, help="run at most N cases of each parametrized test, spread evenly")


def pytest_collection_modifyitems(config, items):
    """Leaves out cases of parametrized tests beyond `--cases`."""
    most = config.getoption("--cases")
    if most is None:
        return
    cases = {}
    for item in items:
        cases.setdefault(item.nodeid.partition("[")[0], []).append(item)
    kept = set()
    for same in cases.values():
        kept.update(same[i * len(same) // most] for i in range(most))
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = [item for item in items if item in kept]


def pytest_configure(config):
    """Makes `pytest.raises` skip a test whose bad input the type checker refuses."""
    pytest.RaisesExc.__exit__ = _skips_bad_input
