"""What the tables of measurements say, and that they say nothing that was not measured."""

import json
from pathlib import Path
from typing import Any

import pytest

from kernels import tables

ROOT = Path(__file__).resolve().parents[2]
KIND = {"dtype": "float32"}


def line(sizes, **rest):
    return {"operation": "op", "kind": KIND, "sizes": sizes, "backend": "gpu", "record": "file", **rest}


@pytest.fixture
def written(monkeypatch, tmp_path):
    """Writes a table of the chip `C` and makes it the one that is read."""

    def write(fastest=(), blocks=()):
        table = {"chip": "C", "fastest": list(fastest), "blocks": list(blocks)}
        (tmp_path / "C.json").write_text(json.dumps(table))
        tables.read.cache_clear()

    monkeypatch.setattr(tables, "FOLDER", tmp_path)
    yield write
    tables.read.cache_clear()


def test_of_several_lines_the_nearest_applies(written):
    of = lambda sizes, i: line(sizes, direction="forward", blocks={"i": i})  # noqa: E731
    written(blocks=[of({"N": 64, "M": 8}, 0), of({"N": 128, "M": 8}, 1), of({"N": 256, "M": 8}, 2)])
    for n, want in ((64, 0), (80, 0), (100, 1), (128, 1), (170, 1), (190, 2), (512, 2)):
        assert tables.blocks("C", "op", "gpu", "forward", KIND, {"N": n, "M": 8}) == {"i": want}


@pytest.mark.parametrize(
    ("chip", "operation", "kind", "sizes"),
    [
        ("D", "op", KIND, {"N": 64}),
        (None, "op", KIND, {"N": 64}),
        ("C", "other", KIND, {"N": 64}),
        ("C", "op", {"dtype": "bfloat16"}, {"N": 64}),
        ("C", "op", KIND, {"N": 129}),
        ("C", "op", KIND, {"N": 31}),
        ("C", "op", KIND, {"N": 64, "M": 1}),
    ],
)
def test_a_line_says_nothing_of_other_calls(written, chip, operation, kind, sizes):
    written(fastest=[line({"N": 64})])
    assert tables.fastest("C", "op", KIND, {"N": 64}) == "gpu"
    assert tables.fastest(chip, operation, kind, sizes) is None


def test_sizes_that_are_symbols_have_no_line(written):
    """An exported function with a symbolic batch takes the defaults."""
    from jax import export

    n: Any = export.symbolic_shape("n")[0]
    written(fastest=[line({"N": 64})])
    assert tables.fastest("C", "op", KIND, {"N": n}) is None


def test_fastest_anywhere(written):
    written()
    assert not tables.fastest_anywhere("op")
    written(fastest=[line({"N": 64})])
    assert tables.fastest_anywhere("op")
    assert not tables.fastest_anywhere("other")


NOT_TABLES = ["", "[]", '{"chip": "C", "fastest": []}', "{", '{"chip": "C", "fastest": [{}], "blocks": []}']


@pytest.mark.parametrize("text", [*NOT_TABLES, "\N{LATIN SMALL LETTER E WITH ACUTE}"])
def test_a_file_that_is_no_table_is_named(monkeypatch, tmp_path, text):
    (tmp_path / "broken.json").write_text(text, encoding="latin-1")
    monkeypatch.setattr(tables, "FOLDER", tmp_path)
    tables.read.cache_clear()
    with pytest.raises(ValueError, match=r"broken\.json: got .*, expected a table"):
        tables.fastest_anywhere("op")
    tables.read.cache_clear()


BROKEN = {
    "sizes that are no integers": {"sizes": {"N": 1.5}},
    "a backend that is no name": {"backend": 3},
    "blocks that are no integers": {"blocks": {"rows": "7"}},
    "blocks that are no table": {"blocks": [7]},
    "a direction that is no name": {"direction": None},
    "no sizes": {"sizes": None},
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_line_is_refused(written, name):
    good = line({"N": 64}, direction="forward", blocks={"rows": 7})
    written(blocks=[good])
    assert tables.blocks("C", "op", "gpu", "forward", KIND, {"N": 64}) == {"rows": 7}
    assert tables.blocks("C", "op", "gpu", "backward", KIND, {"N": 64}) is None
    assert tables.blocks("C", "op", "tpu", "forward", KIND, {"N": 64}) is None
    written(blocks=[good | BROKEN[name]])
    with pytest.raises(ValueError, match=r"C\.json: got TypeError"):
        tables.read()


def test_a_line_of_the_fastest_names_its_record(written):
    written(fastest=[line({"N": 64}, record=None)])
    with pytest.raises(ValueError, match=r"C\.json: got TypeError.*record"):
        tables.read()


@pytest.mark.parametrize(
    ("one", "other", "far"),
    [
        ({"N": 64, "M": 3}, {"N": 32, "M": 9}, 3.0),
        ({"N": 1}, {"N": 1}, 1.0),
        ({"N": 0}, {"N": 2}, 2.0),
        ({}, {}, 1.0),
        ({"N": 1}, {"M": 1}, float("inf")),
    ],
)
def test_the_distance_is_the_largest_ratio(one, other, far):
    assert tables.distance(one, other) == tables.distance(other, one) == far


def test_every_default_rests_on_a_record():
    """A kernel is a default only where a record in results/ shows that it was checked and faster there."""
    for chip, table in tables.read().items():
        for row in table["fastest"]:
            record = json.loads((ROOT / row["record"]).read_text(encoding="utf-8"))
            assert record["chip"] == chip
            checks = [
                check
                for check in record["checks"]
                if check["operation"] == row["operation"]
                and check["implementation"] == row["backend"]
                and "unsupported" not in check
            ]
            assert checks
            assert all(check["holds"] for check in checks if row["kind"]["dtype"] in check["case"])
