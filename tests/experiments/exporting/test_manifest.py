import dataclasses
import datetime

import jax
import pytest

from experiments.exporting import Options, manifest, programs
from tests.experiments.exporting.small import SUMS


@pytest.mark.parametrize(
    ("today", "until"),
    [
        ("2026-11-21", "2027-05-21"),
        ("2026-08-31", "2027-02-28"),
        ("2027-08-31", "2028-02-29"),
        ("2026-12-31", "2027-06-30"),
        ("2026-06-30", "2026-12-30"),
        ("2026-07-15", "2027-01-15"),
        ("2026-01-01", "2026-07-01"),
    ],
)
def test_the_window_is_six_months(today, until):
    found = manifest.window(datetime.date.fromisoformat(today))
    assert (found["exported"], found["until"]) == (today, until)
    assert found["jax"] == jax.__version__


def test_it_says_all_that_a_reader_needs():
    options = Options(sharding={"data": 4, "model": 2}, derivative=True, platforms=("tpu",))
    made = programs.export_programs(SUMS, options)
    found = manifest.describe(SUMS, options, made, datetime.date(2026, 11, 21))
    assert found["inputs"][0] == {
        "name": "ids",
        "shape": ["4*batch", "length"],
        "dtype": "int32",
        "meaning": "numbers",
        "default": None,
        "pad": 0,
        "range": (0, 99),
        "split": ["data"],
    }
    assert [(one["name"], one["shape"], one["dtype"]) for one in found["outputs"]] == [
        ("total", ["4*batch"], "float32"),
        ("each", ["4*batch", "length"], "float32"),
    ]
    assert found["symbols"] == {"batch": (1, None), "length": (1, None)}
    assert found["programs"] == [
        {"member": "program-4.bin", "length": 4},
        {"member": "program-8.bin", "length": 8},
    ]
    assert found["sharding"] == {"axes": {"data": 4, "model": 2}, "devices": 8}
    assert (found["platforms"], found["derivative"]) == (["tpu"], True)
    assert found["versions"]["jax"] == jax.__version__
    assert isinstance(found["compatibility"]["calling_convention"], int)


def test_bounds_of_a_free_length_and_the_room_of_texts_are_there():
    """A text is filled up to the longest program."""
    bounded = dataclasses.replace(SUMS, shortest=2, longest=16, text={"kind": "characters"})
    day = datetime.date(2026, 11, 21)
    for lengths, symbols, room in ((None, (2, 16), None), ((8, 4), (2, 16), 8)):
        options = Options(lengths=lengths, platforms=("cpu",))
        found = manifest.describe(bounded, options, programs.export_programs(bounded, options), day)
        assert found["symbols"] == {"batch": (1, None), "length": symbols}
        assert found["text"] == {"kind": "characters", "length": room}
    assert [manifest.member_of(length) for length in (None, 4)] == ["program.bin", "program-4.bin"]
    assert found["kernels"] == {"names": ["portable"], "chips": []}
