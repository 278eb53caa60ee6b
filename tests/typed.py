"""A pytest plugin, `-p tests.typed`: kernels and papers' packages with every annotation checked at run time.

jaxtyping's import hook, with beartype, checks the shapes, dtypes and classes of each call's arguments and result.
A test that expects an error gets jaxtyping's instead of the function's own message, and is skipped: without this
plugin it runs.
"""

import jaxtyping
import pytest

PACKAGES = ("kernels", "simplicial", "tp_transformer", "folnet", "llrnn")

jaxtyping.install_import_hook(PACKAGES, "beartype.beartype")


_exit = pytest.RaisesExc.__exit__


def _skips_bad_input(self, exc_type, exc_val, exc_tb):
    if isinstance(exc_val, jaxtyping.TypeCheckError):
        pytest.skip("expects an error for bad input, which the type checker raised first")
    return _exit(self, exc_type, exc_val, exc_tb)


def pytest_configure(config):
    """Makes `pytest.raises` skip a test whose bad input the type checker refuses."""
    pytest.RaisesExc.__exit__ = _skips_bad_input
