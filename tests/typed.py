"""A pytest plugin, `-p tests.typed`: tests of kernels and papers with every annotation checked at run time.

jaxtyping's import hook, with beartype, checks the shapes, dtypes and classes of each call's arguments and
result. Checks are off inside `pytest.raises`, where functions get bad input and report it themselves, and in
the tests of everything else, which use the packages as users do. Of a test with many cases only the first
three are checked, since the others seldom have other types and checks take time (43 % in tests/llrnn/logic).

Dataclasses that are pytrees are checked when they are constructed, but not when JAX rebuilds them from
leaves: these may be NumPy arrays, shapes, shardings or placeholders.
"""

import collections
import dataclasses
import functools
import inspect
import types
import typing

import jax
import jaxtyping
import pytest
from beartype import BeartypeConf, beartype

PACKAGES = ("kernels", "simplicial", "tp_transformer", "folnet", "llrnn")
CASES = 3
"""How many cases of a parametrized test are checked."""
CHECKED = pytest.StashKey[set[str]]()


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
_decorated = jaxtyping.jaxtyped


def _jaxtyped(*, typechecker):
    """Replaces `jaxtyping.jaxtyped`, as used by the import hook, to spend less time.

    jaxtyping binds and checks the arguments of a call twice, 25 microseconds, so functions without shapes in
    their annotations are left to the type checker. Inner functions are defined anew in every call, and
    decorating one takes a millisecond: those that need no check are skipped.
    """

    def decorate(x):
        if inspect.isclass(x) and dataclasses.is_dataclass(x):
            if not hasattr(x.__init__, "__wrapped__"):
                x.__init__ = decorate(x.__init__)
            return x
        if not isinstance(x, types.FunctionType):
            return _decorated(x, typechecker=typechecker)
        has_shapes = any(map(_has_shapes, x.__annotations__.values()))
        if "<locals>" in x.__qualname__ and (jaxtyping.config.jaxtyping_disable or not has_shapes):
            return x
        if inspect.isgeneratorfunction(x) or has_shapes:
            return _decorated(x, typechecker=typechecker)
        checked = functools.cache(lambda: typechecker(x))  # most functions are not called in a worker's tests

        @functools.wraps(x)
        def call(*arguments, **named):
            return (x if jaxtyping.config.jaxtyping_disable else checked())(*arguments, **named)

        return call

    return decorate


def _has_shapes(annotation) -> bool:
    """Returns whether a type may have an array's shape in it."""
    if isinstance(annotation, str):  # which names what is not defined yet
        return "[" in annotation
    if isinstance(annotation, typing.TypeAliasType):
        return _has_shapes(annotation.__value__)
    if inspect.isclass(annotation) and issubclass(annotation, jaxtyping.AbstractArray):
        return True
    return any(_has_shapes(inner) for inner in typing.get_args(annotation) if not isinstance(inner, list))


jaxtyping.jaxtyped = _jaxtyped  # pyrefly: ignore
jaxtyping.install_import_hook(PACKAGES, "tests.typed.checked")


def _enable(enabled: bool) -> bool:
    """Switches the checks on or off, and returns whether they were on."""
    before = not jaxtyping.config.jaxtyping_disable
    jaxtyping.config.update("jaxtyping_disable", not enabled)
    return before


def pytest_collection_modifyitems(config, items):
    """Chooses the tests in which annotations are checked."""
    cases = collections.Counter()
    checked = config.stash[CHECKED] = set[str]()
    for item in items:
        test = item.nodeid.partition("[")[0]
        cases[test] += 1
        inside = item.path.relative_to(config.rootpath / "tests").parts[0] in PACKAGES
        if inside and cases[test] <= CASES and item.get_closest_marker("unchecked") is None:
            checked.add(item.nodeid)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item):
    """Checks annotations in the tests of `PACKAGES` only, and not in those marked `unchecked`."""
    before = _enable(item.nodeid in item.config.stash[CHECKED])
    try:
        return (yield)
    finally:
        _enable(before)


def _unchecked_inside(expected: type) -> None:
    """Makes the context manager of `pytest.raises`, or `pytest.RaisesGroup`, switch the checks off."""
    enter, leave = expected.__enter__, expected.__exit__

    def __enter__(self):
        self._enabled = _enable(False)
        return enter(self)

    def __exit__(self, *exception):
        _enable(self._enabled)
        return leave(self, *exception)

    expected.__enter__, expected.__exit__ = __enter__, __exit__


_enable(False)  # until the first test
_unchecked_inside(pytest.RaisesExc)
_unchecked_inside(pytest.RaisesGroup)
