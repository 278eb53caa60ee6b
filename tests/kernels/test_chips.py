"""Chips by their names, of those whose limits are known and of others."""

import pytest

from kernels import chips


@pytest.mark.parametrize(
    ("name", "platform", "capability", "architecture", "backend"),
    [
        ("NVIDIA H100 80GB HBM3", "cuda", None, "sm90", "gpu"),
        ("NVIDIA H100 80GB HBM3", "gpu", "9.0", "sm90", "gpu"),
        ("NVIDIA A100-SXM4-80GB", "cuda", "8.0", "sm80", None),
        ("NVIDIA A100-SXM4-80GB", "cuda", None, "an architecture that its name does not tell", None),
        ("TPU v5", "tpu", None, "v5p", "tpu"),
        ("TPU v99", "tpu", None, "v99", None),
        ("cpu", "cpu", None, "cpu", None),
    ],
)
def test_a_chip_by_its_name(name, platform, capability, architecture, backend):
    chip = chips.named(name, platform, capability)
    assert (chip.kind, chip.architecture, chip.backend) == (name, architecture, backend)
    assert chip.platform == ("cuda" if platform == "gpu" else platform)


def test_a_smaller_chip_of_a_kind_has_its_own_number_of_cores():
    most = chips.named("NVIDIA H100 PCIe", "cuda", "9.0").cores
    assert (most, chips.named("NVIDIA H100 PCIe", "cuda", "9.0", 114).cores) == (chips.HOPPER.cores, 114)
