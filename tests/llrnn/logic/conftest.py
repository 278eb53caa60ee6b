"""Every test of the logic runs in float64 and compiles quickly, and leaves the others as they are."""

from collections.abc import Iterator

import jax
import numpy as np
import pytest

from tests import compiling


@pytest.fixture(scope="module", autouse=True)
def _float64() -> Iterator[None]:
    with jax.enable_x64(True), compiling.quickly():
        yield


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(7)
