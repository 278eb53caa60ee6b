"""FOLNet's pretraining on eight devices gives the results of one and needs less memory on each."""

from pathlib import Path

import numpy as np
import pytest

from tests import on_devices

SCRIPT = Path(__file__).with_name("parity.py")


@pytest.mark.slow
def test_eight_devices_pretrain_as_one_in_every_mode():
    """SGD on batches with uneven masks: copied, split along both axes of the mesh, and accumulated."""
    ways = ("jit", "split", "shard_map", "pmap", "accumulated")
    eight, one = on_devices.outcomes(SCRIPT, (8, ways), (1, ("jit",)))
    expected = one["jit"]
    for way in ways:
        found = eight[way]
        np.testing.assert_allclose(found["params"], expected["params"], rtol=1e-5, atol=1e-6, err_msg=way)
        for name, value in expected["metrics"].items():
            if name != "train_seconds":
                assert found["metrics"][name] == pytest.approx(value, rel=1e-5, abs=1e-6), (way, name)


@pytest.mark.slow
def test_a_text_too_long_for_one_device_trains_on_several():
    """Rows of pairs are on different devices, so each device needs a fraction of the memory."""
    eight, one = on_devices.outcomes(SCRIPT, (8, ("long",)), (1, ("long",)))
    found, expected = eight["long"], one["long"]
    np.testing.assert_allclose(found["params"], expected["params"], rtol=1e-5, atol=1e-6)
    assert found["loss"] == pytest.approx(expected["loss"], rel=1e-5)
    assert expected["whole_pair_tensors"] > 0
    assert found["whole_pair_tensors"] < expected["whole_pair_tensors"] / 10
    assert found["temporary"] < expected["temporary"] / 3
