import dataclasses
import datetime
import hashlib
import zipfile
from pathlib import Path

import chex
import numpy as np
import pytest
import safetensors.numpy

from experiments.exporting import Options, export_model, run_exported
from tests import layouts
from tests.experiments.exporting.small import SUMS

MODEL = dataclasses.replace(SUMS, lengths=(2,))
DAY = datetime.date(2026, 11, 21)


def test_the_same_model_gives_the_same_bytes(tmp_path):
    for name in ("a", "b"):
        export_model(MODEL, tmp_path / name / "m.jaxmodel", today=DAY)
    first, second = ((tmp_path / name / "m.jaxmodel").read_bytes() for name in ("a", "b"))
    assert first == second


def test_the_file_is_a_zip_archive_of_what_its_manifest_lists(tmp_path):
    manifest = export_model(MODEL, tmp_path / "m.jaxmodel", today=DAY)
    with zipfile.ZipFile(tmp_path / "m.jaxmodel") as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
        assert {info.compress_type for info in archive.infolist()} == {zipfile.ZIP_STORED}
    assert set(members) == {"manifest.json", "__main__.py", "program-2.bin", "weights.safetensors"}
    assert members["__main__.py"] == Path(run_exported.__file__).read_bytes()
    for name, one in manifest["members"].items():
        assert one == {
            "sha256": hashlib.sha256(members[name]).hexdigest(),
            "bytes": len(members[name]),
        }
    assert manifest["weights"]["numbers"] == 2


@pytest.mark.parametrize("layout", layouts.LAYOUTS)
def test_numbers_are_those_of_the_arrays_however_they_lie(layout, tmp_path):
    table = layouts.LAYOUTS[layout](np.arange(6, dtype=np.float32).reshape(2, 3))
    params = {**MODEL.params, "table": table, "number": np.float32(2)}
    model = dataclasses.replace(MODEL, params=params)
    export_model(model, tmp_path / "m.jaxmodel", Options(weights="beside"), today=DAY)
    chex.assert_trees_all_equal(safetensors.numpy.load_file(tmp_path / "m.safetensors"), params)


@pytest.mark.parametrize("where", ["inside", "beside"])
def test_a_failure_leaves_nothing_new_and_the_old_as_it_was(where, tmp_path, monkeypatch):
    target = tmp_path / "m.jaxmodel"
    export_model(MODEL, target, Options(weights=where), today=DAY)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    def full(_):
        raise OSError("no space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="no space"):
        export_model(MODEL, target, Options(weights=where), today=datetime.date(2030, 1, 1))
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
