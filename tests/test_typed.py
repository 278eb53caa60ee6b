"""The plugin `tests.typed` checks annotations where it says, and nowhere else."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CALLS = '''
import jax.numpy as jnp
import pytest
from kernels import trans

SQUARE, OTHER = jnp.ones((1, 2, 2)), jnp.ones((1, 3, 2))

def refused():
    """The error of bad shapes, which annotations and the function itself see."""
    try:
        trans(SQUARE, OTHER)
    except Exception as error:
        return type(error).__name__

def test_annotations():
    assert refused() == {expected!r}

@pytest.mark.unchecked
def test_unchecked():
    assert refused() == "ValueError"

def test_bad_input():
    with pytest.raises(ValueError, match="premise"):
        trans(SQUARE, OTHER)
    with pytest.RaisesGroup(ValueError, match="^ValueError"):
        raise ExceptionGroup(refused(), [ValueError()])
    assert refused() == {expected!r}
'''


def test_annotations_are_checked_in_the_tests_of_packages_and_outside_of_raises(tmp_path):
    for folder, expected in (("kernels", "TypeCheckError"), ("experiments", "ValueError")):
        (tmp_path / "tests" / folder).mkdir(parents=True)
        text = CALLS.replace("{expected!r}", repr(expected))
        (tmp_path / "tests" / folder / f"test_{folder}.py").write_text(text, encoding="utf-8")
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = unchecked", encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "tests.typed", f"--rootdir={tmp_path}", str(tmp_path)],
        cwd=tmp_path,
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "JAX_PLATFORMS": "cpu",
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",  # other plugins take longer to load than the tests to run
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=400,
    )
    assert "6 passed" in done.stdout, done.stdout
