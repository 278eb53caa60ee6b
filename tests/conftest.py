"""What every test has: strict JAX (no silent rank promotion), a fixed platform, figures without a screen."""

import gc
import os
from pathlib import Path

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("MPLBACKEND", "Agg")
os.environ.setdefault("NPROC", "8")  # JAX's interpreter of GPU kernels needs a thread a warpgroup, or hangs
# There are as many workers as cores: one that compiles and computes in a single thread disturbs no other.
os.environ.setdefault(
    "XLA_FLAGS", "--xla_cpu_parallel_codegen_split_count=1 --xla_cpu_multi_thread_eigen=false"
)

import chex
import hypothesis
import jax
import pytest

from tests import compiling, workers

jax.config.update("jax_numpy_rank_promotion", "raise")
# The same examples in every run, however long they take to draw on a busy machine.
hypothesis.settings.register_profile(
    "tests", derandomize=True, deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("tests")
gc.set_threshold(100_000, 20, 50)  # tracing makes many objects, and collecting them took a tenth of the time


def pytest_collection_finish():
    """What is imported stays: the garbage collector need not look at it again."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _traces_counted_anew():
    """Chex counts traces by the address of a function, which another test's function may have had."""
    chex.clear_trace_counter()


@pytest.fixture(scope="session", autouse=True)
def _compiled_once(tmp_path_factory):
    """Keeps compiled programs in one folder for all workers, or where JAX_COMPILATION_CACHE_DIR says.

    A worker may read a file that another is still writing: JAX then warns, which pyproject.toml ignores, and
    compiles.
    """
    if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
        shared = workers.shared_folder(tmp_path_factory)
        jax.config.update("jax_compilation_cache_dir", str(shared / "compiled"))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)


@pytest.fixture(scope="module", autouse=True)
def _programs_forgotten():
    """Frees compiled programs before a process has as many mappings of memory as Linux allows, 65,530.

    Each program has about ten; the process would crash. One module makes 15,000 at most.
    """
    yield
    mappings = Path("/proc/self/maps")
    if mappings.exists() and mappings.read_bytes().count(b"\n") > 20_000:
        jax.clear_caches()
        gc.collect()


@pytest.fixture(scope="module")
def compiled_quickly():
    """For a module that says `pytestmark = pytest.mark.usefixtures("compiled_quickly")`."""
    with compiling.quickly():
        yield


@pytest.fixture
def x64():
    """Enables float64 during a test."""
    with jax.enable_x64(True):
        yield
