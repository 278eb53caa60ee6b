"""Annotations of public names resolve at run time, and dependencies are bounded by what was tried."""

import importlib
import inspect
import pkgutil
import sys
import tomllib
import types
import typing
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("kernels", "simplicial", "tp_transformer", "folnet", "llrnn", "experiments")


def modules(package: str) -> Iterator[ModuleType]:
    """A package's modules, imported; programs have their module's name, so nothing runs."""
    root = importlib.import_module(package)
    yield root
    for found in pkgutil.walk_packages(root.__path__, f"{package}."):
        yield importlib.import_module(found.name)


def public(module: ModuleType) -> Iterator[tuple[str, Any]]:
    """Public functions and classes that a module defines, and the public methods and properties of these."""
    for name, value in vars(module).items():
        if name.startswith("_") or getattr(value, "__module__", None) != module.__name__:
            continue
        if inspect.isclass(value):
            yield f"{module.__name__}.{name}", value
            for member, attribute in vars(value).items():
                function = callable_of(attribute)
                if function is not None and (
                    not member.startswith("_") or member in ("__init__", "__call__")
                ):
                    yield f"{module.__name__}.{name}.{member}", function
        elif (function := callable_of(value)) is not None:
            yield f"{module.__name__}.{name}", function


def callable_of(value: Any) -> Any:
    """The function of a method, a property or something that wraps a function (`jax.jit`), or None."""
    if isinstance(value, staticmethod | classmethod):
        value = value.__func__
    value = getattr(value, "fget", None) or getattr(value, "func", value)  # property, cached_property
    function = inspect.unwrap(value) if callable(value) else None
    return function if hasattr(function, "__annotations__") else None


def hints(value: Any) -> dict[str, Any]:
    """The resolved annotations, without those of gymnasium's classes, whose names may not resolve."""
    if inspect.isclass(value) and any(base.__module__.startswith("gymnasium.") for base in value.__mro__):
        own = types.SimpleNamespace(__annotations__=inspect.get_annotations(value))
        return typing.get_type_hints(own, vars(sys.modules[value.__module__]))
    return typing.get_type_hints(value)


@pytest.mark.parametrize("package", PACKAGES)
def test_type_hints_of_everything_public_resolve(package):
    failed = {}
    count = 0
    for module in modules(package):
        for name, value in public(module):
            count += 1
            try:
                hints(value)
            except Exception as error:  # a NameError as a rule: the name is imported for type checkers only
                failed[name] = repr(error)
    assert count > 20
    assert not failed


# ---- versions of dependencies


def requirements() -> dict[str, Requirement]:
    """Everything that pyproject.toml asks for, extras and the build included, by its line there."""
    content = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    project = content["project"]
    extras = project["optional-dependencies"].values()
    lines = [
        *content["build-system"]["requires"],
        *project["dependencies"],
        *(line for e in extras for line in e),
    ]
    return {line: Requirement(line) for line in lines}


def pinned(name: str) -> dict[str, str]:
    """The versions of a file of constraints, by normalised name."""
    lines = (ROOT / name).read_text(encoding="utf-8").splitlines()
    pairs = (line.split("==") for line in lines if "==" in line and not line.startswith("#"))
    return {canonicalize_name(package): version for package, version in pairs}


def test_dependencies_have_upper_bounds():
    """A release that nobody tried here, and may break something, is not installed."""
    unbounded = {
        requirement.name
        for requirement in requirements().values()
        if not any(bound.operator in ("<", "==") for bound in requirement.specifier)
        and not (requirement.extras and not requirement.specifier)  # bounded as a dependency
    }
    extras = {requirement.name for requirement in requirements().values() if requirement.extras}
    assert (unbounded, extras) == (set(), {"jax", "logic-zoo"})


@pytest.mark.parametrize("constraints", ["constraints.txt", "constraints-aot.txt"])
def test_pinned_versions_are_within_the_bounds(constraints):
    versions = pinned(constraints)
    found = {line: versions.get(canonicalize_name(each.name)) for line, each in requirements().items()}
    assert sum(version is not None for version in found.values()) >= 2
    for line, version in found.items():
        assert version is None or requirements()[line].specifier.contains(version), (line, version)
