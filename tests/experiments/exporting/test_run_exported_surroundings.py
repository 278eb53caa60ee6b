"""Compatibility of exported models: versions of JAX, platforms, chips, and devices."""

import datetime
import subprocess
import sys
import types

import numpy as np
import pytest

from experiments.exporting import run_exported
from experiments.exporting.run_exported import Refused
from tests.experiments.exporting.small import rewritten

pytestmark = pytest.mark.usefixtures("compiled_quickly")
IDS = np.array([[1, 2, 3], [4, 5, 6]], np.int32)


DAY = datetime.date(2026, 11, 21)
COMPATIBILITY = {"jax": "0.12.0.1", "until": "2027-05-21", "months_backward": 6, "weeks_forward": 3}


def test_as_a_module_it_starts_without_a_warning():
    """Nothing that its package imports has imported it before."""
    command = [sys.executable, "-W", "error", "-m", run_exported.__name__, "--help"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.startswith("usage: ")
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("here", "today", "message"),
    [
        ("0.12.0.1", datetime.date(2040, 1, 1), None),
        ("0.13.0", datetime.date(2027, 5, 21), None),
        (
            "0.13.0",
            datetime.date(2027, 5, 22),
            "6 months .* ended on 2027-05-21; install jax==0.12.0.1",
        ),
        ("0.12.0", DAY, None),
        ("0.12.0.0", DAY, None),
        ("0.11.1", DAY, "got 0.11.1, expected 0.12.0.1 or newer: .* 3 weeks"),
        ("0.9.0", DAY, "got 0.9.0, expected 0.12.0.1 or newer"),
    ],
)
def test_the_window_is_that_which_jax_promises(here, today, message):
    if message is None:
        run_exported.check_window(COMPATIBILITY, here=here, today=today)
    else:
        with pytest.raises(Refused, match=message):
            run_exported.check_window(COMPATIBILITY, here=here, today=today)


def test_a_model_of_another_time_is_refused_unless_one_insists(sums, tmp_path):
    def age(manifest):
        manifest["compatibility"] |= {"jax": "0.10.0", "until": "2026-01-02"}

    old = rewritten(sums, tmp_path / "old.jaxmodel", age)
    with pytest.raises(Refused, match=r"jax: got .*, expected 0.10.0: .* ended on 2026-01-02"):
        run_exported.load(old)
    run_exported.load(old, today=datetime.date(2026, 1, 2))
    assert run_exported.load(old, any_version=True)({"ids": IDS})["total"].tolist() == [22, 40]


def device(platform="cpu", kind="cpu", version="", count=1):
    client = types.SimpleNamespace(platform_version=version)
    return [types.SimpleNamespace(platform=platform, device_kind=kind, client=client)] * count


@pytest.mark.parametrize(
    ("devices", "message"),
    [
        (device("gpu", "NVIDIA H200", "cuda 13", 2), None),
        (device("gpu", "NVIDIA A100", "cuda 13", 2), "device: got NVIDIA A100, expected one of NVIDIA H200"),
        (device("gpu", "MI300", "rocm 7", 2), "platform: got rocm, expected one of cuda"),
        (device(), "platform: got cpu, expected one of cuda"),
        (device("gpu", "NVIDIA H200", "cuda 13", 3), r"devices: got 3, expected 2 \(data:2\)"),
    ],
)
def test_other_platforms_chips_and_numbers_of_devices_are_refused(devices, message):
    manifest = {
        "platforms": ["cuda"],
        "kernels": {"chips": ["NVIDIA H200"]},
        "sharding": {"axes": {"data": 2}, "devices": 2},
    }
    if message is None:
        run_exported.check_surroundings(manifest, devices)
    else:
        with pytest.raises(Refused, match=message):
            run_exported.check_surroundings(manifest, devices)


def test_one_device_of_several_is_enough():
    manifest = {
        "platforms": ["cpu"],
        "kernels": {"chips": []},
        "sharding": {"axes": {}, "devices": 1},
    }
    run_exported.check_surroundings(manifest, device(count=3))


def test_jax_s_own_refusal_is_reported(sums, monkeypatch):
    def expired(_):
        raise ValueError("older than the 6-month window")

    monkeypatch.setattr(run_exported.export, "deserialize", expired)
    with pytest.raises(Refused, match="cannot read it: older than the 6-month window"):
        run_exported.load(sums)
