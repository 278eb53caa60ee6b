"""Importing this module raises ImportError if `kernels` is another distribution's package.

Hugging Face's distribution `kernels` installs a package of that name. In one environment with logic-zoo, the
later installation overwrites files of the earlier one, and uninstalling either removes files of both.
Packages that use `kernels` import this module first; `kernels` itself may be the other one.
"""

import importlib.metadata
import importlib.util
import warnings

OTHER = "kernels"
"""The name of the other distribution, and of the package that both have."""

MARK = "two_simplicial_attention"
"""A name that our `kernels/__init__.py` exports, and the other does not."""

REMEDY = (
    "Use separate environments, or keep logic-zoo only: `pip uninstall kernels`, then `pip install "
    "--force-reinstall --no-deps logic-zoo` (with the path or the URL that you installed it from)."
)


def foreign_file() -> str | None:
    """Returns the file, or the folder, that `import kernels` finds if it is not ours; None if it is.

    The package is not imported, because the import of another one may fail or take long.
    """
    spec = importlib.util.find_spec(OTHER)
    if spec is None:
        return "no such package"
    if spec.origin is None:  # a folder without __init__.py, as uninstalling the other package leaves behind
        return str(next(iter(spec.submodule_search_locations or ()), "no file"))
    get_source = getattr(spec.loader, "get_source", None)
    source = get_source(OTHER) if get_source else None
    # Without source, as in some frozen programs, nothing can be said.
    return spec.origin if source is not None and MARK not in source else None


def other_distribution() -> str | None:
    """Returns the name and version of the other distribution, if it is installed."""
    try:
        return f"{OTHER} {importlib.metadata.version(OTHER)}"
    except importlib.metadata.PackageNotFoundError:
        return None


def check() -> None:
    """Checks that `kernels` is ours.

    Raises:
        ImportError: it is another package; the message names its file, its distribution, and the remedy.

    Warns:
        UserWarning: it is ours, but the other distribution is installed, too.
    """
    file, other = foreign_file(), other_distribution()
    if file is not None:
        owner = f" of the distribution {other!r}" if other else ""
        raise ImportError(
            f"kernels: got {file}{owner}, expected the package of logic-zoo. {REMEDY}", name=OTHER, path=file
        )
    if other:
        warnings.warn(
            f"the distribution {other!r} is installed, but its package is replaced by that of logic-zoo: "
            f"libraries that use it, such as transformers, may fail. {REMEDY}",
            stacklevel=3,
        )


check()
