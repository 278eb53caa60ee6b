"""The package as a user sees it, from generation to batches."""

import ast
import types
from pathlib import Path

import numpy as np

from tp_transformer import mathematics


def test_public_names():
    """`__all__` lists exactly the imported names."""
    public = {
        name
        for name, value in vars(mathematics).items()
        if not name.startswith("_") and not isinstance(value, types.ModuleType)
    }
    assert public == set(mathematics.__all__)


def test_light_to_import():
    """File readers import neither the generator nor TensorFlow Datasets until they are used."""
    paths = sorted(Path(mathematics.__file__).parent.glob("*.py"))
    assert len(paths) > 10
    for path in paths:
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            heavy = ("sympy", "mathematics_dataset", "tensorflow_datasets", "tp_transformer.mathematics.tfds")
            assert not [name for name in names if name.startswith(heavy)], path


def test_from_the_generator_through_files_to_the_same_batches(tmp_path):
    """Questions drawn in memory and read from files give the same batches."""
    chosen = mathematics.Generator(
        train=90, test=20, names=("numbers__gcd", "measurement__time"), extrapolation=()
    )
    written = mathematics.generate(tmp_path, chosen, processes=1, show=False)
    opened = mathematics.open_source(tmp_path)
    assert type(opened) is type(written)
    one = mathematics.Batches(chosen, "train", batch_size=16, seed=4)
    other = mathematics.Batches(opened, "train", batch_size=16, seed=4)
    assert one.modules == other.modules
    for step in (0, 3, 40):
        for a, b in zip(one[step], other[step], strict=True):
            np.testing.assert_array_equal(a, b)
