"""Shared by the tests of benchmarks of kernels."""

import numpy as np
import pytest

from benchmarks import kernel_cases


@pytest.fixture
def drawn_by_numpy(monkeypatch):
    """The arrays of cases, which compile a program for each one."""

    def draw(case, seed=0):
        rng = np.random.default_rng(seed)
        return tuple(
            None if aval is None else (spread * rng.normal(size=aval.shape)).astype(aval.dtype)
            for aval, spread in zip(case.avals, case.spread, strict=True)
        )

    monkeypatch.setattr(kernel_cases.Case, "draw", draw)
