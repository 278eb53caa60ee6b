"""The distribution logic-zoo: its version and its extras. The models are in the other packages.

Those are `kernels`, `simplicial`, `tp_transformer`, `folnet`, `llrnn` and `experiments`. This package imports
only the standard library. `own_kernels` checks that `kernels` is the package of this distribution.
"""

import contextlib
from collections.abc import Iterator

__all__ = ["__version__", "extra"]

# Transformers reads this as the version of Hugging Face's `kernels`, because it looks up the distribution
# that has a package of that name. It uses it from 0.18.2 to below 0.19, so ours must have another version.
__version__ = "0.1.0"


@contextlib.contextmanager
def extra(name: str) -> Iterator[None]:
    """Names the extra to install if a package that is imported in the block is missing.

    Raises:
        ModuleNotFoundError: a package is missing; the message has the command that installs it.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        message = f"{error.name}: not installed, expected the extra {name!r}: pip install 'logic-zoo[{name}]'"
        raise ModuleNotFoundError(message, name=error.name) from error
