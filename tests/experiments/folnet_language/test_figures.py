"""The page of a run that writes."""

import numpy as np
import pytest

from experiments.folnet_language import figures

pytestmark = pytest.mark.usefixtures("looks")


def test_perplexity_by_step():
    figure = figures.curve_of(([2, 4], [2.0, 1.0]), 5.0)
    [axes] = figure.axes
    model, frequencies = axes.lines
    np.testing.assert_allclose(np.asarray(model.get_ydata()), np.exp([2, 1]))
    np.testing.assert_array_equal(np.asarray(frequencies.get_xydata()), [[2, 5], [4, 5]])
    assert figures.curve_of(([], []), 5.0).axes
