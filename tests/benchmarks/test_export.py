"""The benchmark of exports: what a row says, and that models that differ are noticed."""

import dataclasses

import pytest

from benchmarks import export
from tests.experiments.exporting import small as small_exports

pytestmark = pytest.mark.usefixtures("compiled_quickly")
SUMS = small_exports.SUMS


def test_a_row_tells_what_was_measured(monkeypatch):
    monkeypatch.setitem(export.CASES, "sums", (lambda: SUMS, 3, 4))
    row = export.measure("sums", blocks=2, seconds=0.001)
    assert row["inputs"] == {"ids": [3, 4], "mask": [3, 4]}
    assert (row["parameters"], row["weight_bytes"]) == (2, 8)
    assert row["file_bytes"] > row["program_bytes"] > 0
    assert set(row["call_seconds"]) == {"live", "exported", "fetched", "checked"}
    over = row["exported_over_live"]
    assert over["least"] <= over["median"] <= over["greatest"]
    assert "sums: exported in" in export.format_row(row)
    assert "ABOVE" in export.format_row(row | {"exported_over_live": dict.fromkeys(over, 1.06)})
    assert "ABOVE" not in export.format_row(row | {"exported_over_live": dict.fromkeys(over, 1.04)})


def test_another_answer_is_noticed(monkeypatch):
    calls = []

    def changes(params, inputs):
        calls.append(None)
        scaled = {**params, "scale": params["scale"] * len(calls)}
        return small_exports.weigh(scaled, inputs)

    other = dataclasses.replace(SUMS, function=changes)
    monkeypatch.setitem(export.CASES, "other", (lambda: other, 3, 4))
    with pytest.raises(RuntimeError, match="other: the output each of the exported model differs"):
        export.measure("other", blocks=1, seconds=0.001)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(export.CASES))
def test_every_case_can_be_measured(name):
    row = export.measure(name, blocks=1, seconds=0.01)
    assert row["exported_over_live"]["median"] > 0
