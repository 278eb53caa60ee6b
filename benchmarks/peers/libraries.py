"""Finds the installed peers, and reasons for those that cannot be used."""

import dataclasses
import importlib
import importlib.metadata
from collections.abc import Callable, Mapping
from typing import Any

from benchmarks import timing


@dataclasses.dataclass(frozen=True)
class Library:
    """A library to compare with."""

    title: str  # name in the record
    package: str  # name to import
    distribution: str  # name to install
    # Our module for it. It has `programs(subject)`, which returns functions that make programs by name of the
    # row ({} for subjects without a counterpart), and may have `about()`, which returns facts for the record.
    side: str


LIBRARIES: Mapping[str, Library] = {
    "torch": Library("PyTorch", "torch", "torch", "benchmarks.peers.torch_programs"),
    "lucidrains": Library(
        "lucidrains' simplicial-attention",
        "simplicial_attention",
        "simplicial-attention",
        "benchmarks.peers.lucidrains",
    ),
    "tokamax": Library("tokamax", "tokamax", "tokamax", "benchmarks.peers.tokamax_ops"),
    "cuequivariance": Library(
        "cuEquivariance", "cuequivariance_jax", "cuequivariance-jax", "benchmarks.peers.cuequivariance_ops"
    ),
}


@dataclasses.dataclass(frozen=True)
class Found:
    """A library on this machine: facts for the record (or the reason, "absent"), and its programs.

    The programs of training steps are those of `training.subjects.Subject`, made with our parameters.
    """

    about: Mapping[str, Any]
    programs: Callable[[Any], Mapping[str, Callable[..., Any]]]


def find(key: str, side: str | None = None) -> Found:
    """Imports a library and our module for it, `side` in place of the library's own.

    Importing a broken package, or one incompatible with the installed JAX, may raise any exception; the
    record names it, and other libraries are still compared.
    """
    library = LIBRARIES[key]
    try:
        importlib.import_module(library.package)
        ours = importlib.import_module(side or library.side)
    except ModuleNotFoundError as error:
        missing = f"{library.distribution} is not installed"
        if error.name != library.package:
            missing = f"{library.distribution} needs {error.name}, which is not installed"
        return Found({"absent": missing}, lambda subject: {})
    except Exception as error:
        return Found({"absent": f"cannot be imported: {timing.one_line(error)}"}, lambda subject: {})
    about = {"version": importlib.metadata.version(library.distribution)}
    if hasattr(ours, "about"):
        about |= ours.about()
    return Found(about, ours.programs)
