"""The package's public names and the example in its docstring."""

import re

import numpy as np

from folnet import pretraining


def test_every_name_is_there():
    """They are exactly those listed."""
    assert list(pretraining.__all__) == sorted(pretraining.__all__, key=_ruff_order)
    for name in pretraining.__all__:
        assert hasattr(pretraining, name), name


def _ruff_order(name):
    return (0 if name.isupper() else 1 if name[0].isupper() else 2, name)


def test_the_example_of_its_text_runs():
    """Its results are as its comments say."""
    (code,) = re.findall(r"```python\n(.*?)```", pretraining.__doc__, re.DOTALL)
    names: dict = {}
    exec(code, names)
    batch, train, test, line = (names[name] for name in ("batch", "train", "test", "baseline"))
    assert batch.input_ids.shape == (32, 128)
    assert batch.mlm_positions.shape == (32, 20)
    assert all(map(np.array_equal, next(names["ahead"]), batch))
    assert 4 < line < np.log(4000)
    texts = [
        {tuple(window.tokens) for window in made.windows.take(range(len(made.windows)))}
        for made in (train, test)
    ]
    assert texts[0]
    assert texts[1]
    assert texts[0].isdisjoint(texts[1])
