"""Reads defaults of parameters from a package's modules."""

import importlib
import inspect
import pkgutil
import sys
from collections.abc import Iterator
from typing import Any

from flax import linen as nn


def of_methods(package: str, name: str) -> dict[str, object]:
    """The defaults of parameters `name` of methods of modules that were imported from a package."""
    found = {}
    modules = [module for path, module in sys.modules.items() if path.partition(".")[0] == package]
    for one in {one for module in modules for one in vars(module).values() if inspect.isclass(one)}:
        if issubclass(one, nn.Module):
            for function in filter(inspect.isfunction, vars(one).values()):
                if (parameter := inspect.signature(function).parameters.get(name)) is not None:
                    found[function.__qualname__] = parameter.default
    return found


def of_package(package: str) -> dict[str, str]:
    """Returns the defaults of all functions, methods and fields that a package's modules define, as text.

    Programs and modules for PyTorch are left out.
    """
    found = {}
    folder = importlib.import_module(package)
    for module in pkgutil.walk_packages(folder.__path__, f"{package}."):
        if module.name.endswith(("__main__", "pytorch")) or ".pytorch." in module.name:
            continue
        for name, function in _functions(importlib.import_module(module.name)):
            for parameter in inspect.signature(function).parameters.values():
                if parameter.default is not parameter.empty and parameter.name != "parent":  # Flax's own
                    found[f"{name}({parameter.name})"] = _text(parameter.default)
    return dict(sorted(found.items()))


def _functions(module: Any) -> Iterator[tuple[str, Any]]:
    for value in vars(module).values():
        if getattr(value, "__module__", None) != module.__name__:
            continue
        parts = [value, *vars(value).values()] if inspect.isclass(value) else [value]
        for part in map(inspect.unwrap, parts):
            if inspect.isfunction(part) and part.__module__ == module.__name__:
                yield f"{module.__name__}.{part.__qualname__}", part


def _text(value: Any) -> str:
    plain = isinstance(value, bool | int | float | str | bytes | None | tuple | frozenset | dict | list)
    if plain and " at 0x" not in repr(value):
        return repr(value)[:100]
    return getattr(value, "__name__", type(value).__name__)
