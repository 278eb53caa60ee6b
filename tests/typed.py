"""A pytest plugin, `-p tests.typed`, that checks the annotations of kernels and papers' packages at run time.

jaxtyping's import hook, with beartype, checks shapes, dtypes and classes of each call's arguments and result.
Tests of bad input get its error instead of the function's own message, so they are skipped; they run without
this plugin.
"""

import jaxtyping
import pytest
from beartype import BeartypeConf, beartype

PACKAGES = ("kernels", "simplicial", "tp_transformer", "folnet", "llrnn")

# An int where a float is annotated is right, as static type checkers have it (PEP 484).
checked = beartype(conf=BeartypeConf(is_pep484_tower=True))

jaxtyping.install_import_hook(PACKAGES, "tests.typed.checked")


_exit = pytest.RaisesExc.__exit__


def _skips_bad_input(self, exc_type, exc_val, exc_tb):
    if isinstance(exc_val, jaxtyping.TypeCheckError):
        pytest.skip("expects an error for bad input, which the type checker raised first")
    return _exit(self, exc_type, exc_val, exc_tb)


def pytest_configure(config):
    """Makes `pytest.raises` skip a test whose bad input the type checker refuses."""
    pytest.RaisesExc.__exit__ = _skips_bad_input
