"""Subjects: their names in every size, and their definitions."""

import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks.peers import subjects
from kernels.two_simplicial import shapes as two_simplicial_shapes


def kinds(size):
    """Returns the names without the shapes'."""
    return {name.split(",")[0] for name in subjects.subjects(subjects.SIZES[size])}


def test_every_size_has_every_subject():
    assert kinds("small") == kinds("papers") == kinds("accelerator")
    assert len(kinds("small")) == 13


@pytest.mark.slow
def test_signed_attention_is_that_of_roy_et_al():
    """Determinants of blocks of three, a softmax over pairs, and elementwise products of values."""
    shape = two_simplicial_shapes.Shape("tiny", batch=1, heads=1, queries=2, keys=3, features=6)
    subject = subjects.signed(shape)
    query, key1, key2, value = (x[0, :, 0].astype(np.float64) for x in subject.inputs)
    expected = np.zeros((2, 6))
    for i in range(2):
        logits = np.zeros((3, 3))
        for j in range(3):
            for k in range(3):
                pieces = zip(*(x.reshape(2, 3) for x in (query[i], key1[j], key2[k])), strict=True)
                logits[j, k] = sum(np.linalg.det(np.stack(piece)) for piece in pieces) / np.sqrt(6)
        weights = np.exp(logits) / np.exp(logits).sum()
        expected[i] = sum(weights[j, k] * value[j] * value[k] for j in range(3) for k in range(3))
    (found,) = subject.ours({}, *map(jnp.asarray, subject.inputs))
    np.testing.assert_allclose(found[0, :, 0], expected, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_subjects_are_float32_and_their_vectors_are_not_what_a_model_starts_with():
    for make in subjects.subjects(subjects.SMALL).values():
        subject = make()
        for path, array in subject.params.items():
            assert array.dtype == np.float32
            if array.ndim == 1:
                assert not np.any((array == 0) | (array == 1)), path
        assert all(x.dtype in (np.float32, np.uint8, np.bool_) for x in subject.inputs)
