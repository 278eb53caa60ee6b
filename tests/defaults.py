"""Reads defaults of parameters from a package's modules."""

import inspect
import sys

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
