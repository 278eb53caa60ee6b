"""Models that write learn the same on eight devices as on one."""

from pathlib import Path

import numpy as np
import pytest

from tests import on_devices

SCRIPT = Path(__file__).with_name("parity.py")


@pytest.mark.slow
def test_eight_devices_train_as_one_in_every_mode():
    """SGD on rows with uneven numbers of words: copied, and split along both axes of the mesh."""
    ways = ("jit", "split", "shard_map", "pmap")
    eight, one = on_devices.outcomes(SCRIPT, (8, ways), (1, ("jit",)))
    for name, expected in one["jit"].items():
        for way in ways:
            found = eight[way][name]
            np.testing.assert_allclose(
                found["params"], expected["params"], rtol=1e-5, atol=1e-6, err_msg=f"{way} {name}"
            )
            for metric, value in expected["metrics"].items():
                if metric != "train_seconds":
                    assert found["metrics"][metric] == pytest.approx(value, rel=1e-5, abs=1e-6), (way, metric)
