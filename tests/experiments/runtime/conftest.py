"""What the runtime's tests share: the programs beside them can be imported, and nothing is compiled twice."""

import sys
from pathlib import Path

import jax
import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="package", autouse=True)
def _compiled_once(tmp_path_factory):
    """The tests run one small program again and again; compiling it would be most of their time."""
    settings = {
        "jax_compilation_cache_dir": str(tmp_path_factory.mktemp("compiled")),
        "jax_persistent_cache_min_compile_time_secs": 0.0,
    }
    before = {name: getattr(jax.config, name) for name in settings}
    for name, value in settings.items():
        jax.config.update(name, value)
    yield
    for name, value in before.items():
        jax.config.update(name, value)
