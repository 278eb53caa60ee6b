"""Which peers are installed here, and the word for those that are not."""

import dataclasses
import importlib
import importlib.metadata
from collections.abc import Callable, Mapping
from typing import Any

from benchmarks.peers.comparing import Program, Subject, one_line


@dataclasses.dataclass(frozen=True)
class Library:
    """A peer."""

    title: str  # how the record calls it
    package: str  # what is imported
    distribution: str  # what is installed
    # our module with its side of the comparisons. It has `programs(subject)`, which gives for each name of a
    # row a function that makes the program, and none for subjects that the library has no counterpart of; it
    # may have `about()`, for the record
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
    """A library as it is here."""

    about: Mapping[str, Any]  # for the record: version and settings, or "absent" with a word
    # of a subject; gives none if the library is absent
    programs: Callable[[Subject], Mapping[str, Callable[[], Program]]]


def find(key: str) -> Found:
    """Imports a library, and our side for it.

    An optional package that is broken, or too old or new for the JAX that is here, raises anything at import:
    that is said in the record as well, and the others go on.
    """
    library = LIBRARIES[key]
    try:
        importlib.import_module(library.package)
        side = importlib.import_module(library.side)
    except ModuleNotFoundError as error:
        missing = f"{library.distribution} is not installed"
        if error.name != library.package:
            missing = f"{library.distribution} needs {error.name}, which is not installed"
        return Found({"absent": missing}, lambda subject: {})
    except Exception as error:
        return Found({"absent": f"cannot be imported: {one_line(error)}"}, lambda subject: {})
    about = {"version": importlib.metadata.version(library.distribution)}
    if hasattr(side, "about"):
        about |= side.about()
    return Found(about, side.programs)
