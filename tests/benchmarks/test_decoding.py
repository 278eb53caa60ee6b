"""The benchmark of decoding at a small size: its rows, and its check of the outputs."""

import dataclasses

import pytest

from benchmarks import decoding

pytestmark = pytest.mark.usefixtures("compiled_quickly")


def test_a_row(monkeypatch):
    layer = dataclasses.replace(decoding.LAYERS["signed"], window1=2, window2=5)
    monkeypatch.setitem(decoding.LAYERS, "signed", layer)
    monkeypatch.setattr(
        decoding.timing,
        "alternate",
        lambda functions, blocks: {
            name: [call().shape[1] * seconds]
            for (name, call), seconds in zip(functions.items(), (3.0, 0.1), strict=True)
        },
    )
    row = decoding.measure("signed", 8, 1)
    assert row["speedup"]["median"] == pytest.approx(30)
    assert decoding.format_row(row).endswith("30 (30 to 30) times as fast")
    monkeypatch.setattr(decoding, "TOLERANCE", 0.0)
    with pytest.raises(ValueError, match="signed: a step differs from the whole sequence"):
        decoding.measure("signed", 8, 1)
