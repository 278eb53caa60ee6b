"""The page that follows one batch names at most ten files, and functions that are in them."""

import importlib
import re
from pathlib import Path

import jax
import numpy as np

from experiments.folnet_pretrain import config, train
from folnet.pretraining import PretrainingBatch

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs" / "one_batch.md").read_text(encoding="utf-8")
FILES = list(dict.fromkeys(re.findall(r"`([\w/]+\.py)`", PAGE)))
OTHERS = {"jax", "optax", "optimizer.update"}
"""Libraries, and the method of a library's object."""


def named():
    """File and dotted name of each definition that the page names in backticks."""
    by_stem = {Path(file).stem: file for file in FILES}
    found = []
    for stem, name in dict.fromkeys(re.findall(r"`(\w+)\.([\w.]+)[`(]", PAGE)):
        if name != "py" and not {stem, f"{stem}.{name}"} & OTHERS:
            found.append((by_stem.get(stem), name))
    return found


def test_the_page_names_at_most_ten_files():
    assert 5 < len(FILES) <= 10
    assert [file for file in FILES if not (ROOT / file).is_file()] == []
    headings = re.findall(r"^## (\d+)\. `([\w/.]+)`$", PAGE, re.MULTILINE)
    assert headings == [(str(number), file) for number, file in enumerate(FILES, start=1)]


def test_what_the_page_names_is_there():
    """Each name is an attribute of the module of its file; fields of a class may be annotations only."""
    assert len(named()) > 30
    for file, name in named():
        assert file is not None, name
        found: object = importlib.import_module(file.removesuffix(".py").replace("/", "."))
        *holders, last = name.split(".")
        for part in holders:
            found = getattr(found, part)
        assert hasattr(found, last) or last in getattr(found, "__annotations__", {}), (file, name)


def test_shapes_are_those_of_the_page():
    chosen = config.quick().resolved()
    text = chosen.data.open()
    batch = train.training_batches(chosen, text)(0)
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \[([\d, ]+)\] \|", PAGE, re.MULTILINE)
    assert [name for name, _, _ in rows] == list(PretrainingBatch._fields)
    for name, kind, shape in rows:
        array = getattr(batch, name)
        assert (str(array.dtype), str(list(array.shape))) == (kind, f"[{shape}]"), name
    arrays = batch._asdict() | jax.tree.map(np.asarray, train.totals(batch._asdict()))
    assert arrays["sentences"] == 32
    assert arrays["predictions"] <= 160
    model = chosen.model.make(chosen.data.pretrain_loss)
    params = jax.eval_shape(train.make_init(model), jax.random.key(0))
    assert f"{sum(leaf.size for leaf in jax.tree.leaves(params)):,} numbers" in PAGE
    out = jax.eval_shape(
        lambda p: model.apply(
            {"params": p}, batch.input_ids, batch.token_type_ids, mlm_positions=batch.mlm_positions
        ),
        params,
    )
    for leaf in jax.tree.leaves(out):
        assert str(list(leaf.shape)) in PAGE
    sums = jax.eval_shape(train.make_loss(chosen, model), params, arrays, jax.random.key(0))
    assert sums.numerator.shape == ()
    rates = jax.vmap(chosen.make_schedule())(np.asarray([0, 24, 25]))
    np.testing.assert_allclose(rates, [0.02 / 25, 0.02, 0.02], rtol=1e-6)
    assert f"windows of at most {text.train.room} tokens" in PAGE
