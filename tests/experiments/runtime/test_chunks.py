"""The number of parts of a run: by the table, by the config, or as the run was begun with."""

import dataclasses
import json
from typing import Any

import jax
import pytest
import regression  # pyrefly: ignore[missing-import]
from regression_config import quick  # pyrefly: ignore[missing-import]

from experiments import registry, runtime
from experiments.runtime import chunks
from experiments.runtime.config import RunConfig
from experiments.runtime.workdir import config_dict, flatten

pytestmark = pytest.mark.usefixtures("compiled_quickly")

HERE = {"architecture": "x86_64", "cores": 2, "caches": ["1024K", "32768K"]}


@dataclasses.dataclass
class Sized(RunConfig):
    """A config with a size."""

    experiment = "sized"
    size_fields = ("width", "data.length")

    width: int = 3
    lr: float = 0.1


def init(key):
    return {"w": jax.random.normal(key, (3, 4)), "b": jax.random.normal(key, (4,))}


@pytest.fixture
def table(tmp_path, monkeypatch):
    """Returns a function that replaces the table of this machine."""
    path = tmp_path / "chunks.json"
    monkeypatch.setattr(chunks, "TABLE", path)
    monkeypatch.setattr(chunks, "machine", lambda: HERE)
    line = {"experiment": "sized", "sizes": {"width": 3}, "parameters": 16, "machine": HERE, "rows": 4}

    def write(**changes):
        path.write_text(json.dumps([line | {"rows": 1, "parameters": 17}, line | changes]))

    write()
    return write


def test_a_line_applies_to_its_experiment_sizes_parameters_and_machine(table):
    config = Sized(batch_size=64, lr=0.5)
    assert chunks.resolved(config, None, init) == dataclasses.replace(config, accumulate=16)
    assert chunks.resolved(dataclasses.replace(config, batch_size=8), None, init).accumulate == 2
    assert chunks.resolved(dataclasses.replace(config, accumulate=2), None, init).accumulate == 2
    assert chunks.resolved(dataclasses.replace(config, width=4), None, init).accumulate == 1
    for changes in (
        {"experiment": "other"},
        {"parameters": 15},
        {"machine": HERE | {"cores": 4}},
        {"machine": HERE | {"caches": ["1024K"]}},
    ):
        table(**changes)
        assert chunks.resolved(config, None, init).accumulate == 1


@dataclasses.dataclass
class Deeper(Sized):
    """The same config, when it has been given another size."""

    size_fields = (*Sized.size_fields, "depth")

    depth: int = runtime.added(1)


def test_a_line_applies_to_configs_with_fields_added_since(table):
    """While these have their defaults, the work is what was measured."""
    assert chunks.resolved(Deeper(), None, init).accumulate == 16
    assert chunks.resolved(Deeper(depth=2), None, init).accumulate == 1
    table(sizes={"width": 3, "depth": 2})
    assert chunks.resolved(Deeper(depth=2), None, init).accumulate == 16


def test_each_device_cuts_its_rows_and_accelerators_have_one_part(table, monkeypatch):
    for devices, parts in {1: 16, 2: 8, 5: 1, 16: 1}.items():
        monkeypatch.setattr(jax, "device_count", lambda count=devices: count)
        assert chunks.resolved(Sized(), None, init).accumulate == parts
    monkeypatch.setattr(jax, "device_count", lambda: 1)
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert chunks.resolved(Sized(), None, init).accumulate == 1


@pytest.mark.parametrize(
    ("batch_size", "rows", "parts"),
    [(32, 2, 16), (32, 5, 8), (32, 32, 1), (32, 100, 1), (7, 3, 7), (30, 4, 10)],
)
def test_parts_are_equal_and_no_larger_than_measured(batch_size, rows, parts):
    assert chunks.parts_of(batch_size, rows) == parts


def test_a_missing_table_is_empty_and_a_damaged_one_is_named(table, tmp_path):
    assert chunks.read(tmp_path / "none.json") == []
    for changes in ({"rows": 0}, {"rows": "4"}, {"sizes": []}):
        table(**changes)
        with pytest.raises(ValueError, match=r"chunks\.json: got .*expected lines with experiment, sizes"):
            chunks.resolved(Sized(), None, init)
    (tmp_path / "chunks.json").write_text('[{"experiment"')
    with pytest.raises(ValueError, match=r"chunks\.json: got .*expected lines"):
        chunks.resolved(Sized(), None, init)


def test_the_machine_and_the_committed_table():
    """Cores and caches are known on Linux; every committed line belongs to an experiment and its fields."""
    here = chunks.machine()
    assert here["cores"] >= 1
    assert json.loads(json.dumps(here)) == here
    for line in chunks.read(chunks.TABLE):
        config = registry.EXPERIMENTS[line["experiment"]].presets("quick")
        assert chunks.completed(line["sizes"], config).keys() == chunks.sizes_of(config).keys()
        assert line["batch_size"] % line["rows"] == 0


def test_caches_of_the_first_level_do_not_count(tmp_path, monkeypatch):
    """Machines that differ in them alone share measurements."""
    for index, (level, size) in enumerate([("1", "48K"), ("1", "32K"), ("2", "1024K"), ("3", "32768K")]):
        folder = tmp_path / "cpu0" / "cache" / f"index{index}"
        folder.mkdir(parents=True)
        (folder / "level").write_text(f"{level}\n")
        (folder / "size").write_text(f"{size}\n")
    monkeypatch.setattr(chunks, "CPUS", tmp_path)
    assert chunks.machine.__wrapped__()["caches"] == ["1024K", "32768K"]


@pytest.mark.parametrize("name", registry.NAMES)
def test_the_fields_of_the_sizes_exist(name):
    experiment: Any = registry.EXPERIMENTS[name]
    config = experiment.presets(experiment.presets.names[0])
    found = chunks.sizes_of(config)
    for field in experiment.config.size_fields:
        assert any(f"{name}.".startswith(f"{field}.") for name in found), field
    assert found.keys() <= flatten(config_dict(config)).keys()


def test_a_run_continues_with_the_parts_it_began_with(tmp_path, monkeypatch):
    """Whatever the table says later, to the bit; and a run from before the field with one."""
    monkeypatch.setattr(chunks, "chosen", lambda config, init: 4)
    straight = regression.main(quick(), quiet=True)
    half = dataclasses.replace(quick(), steps=40)
    regression.main(half, workdir=tmp_path / "run", quiet=True)
    assert json.loads((tmp_path / "run" / "config.json").read_text())["accumulate"] == 4
    monkeypatch.setattr(chunks, "chosen", lambda config, init: 2)
    continued = regression.main(quick(), workdir=tmp_path / "run", quiet=True)
    assert continued.summary["params_sha256"] == straight.summary["params_sha256"]
    with pytest.raises(runtime.WorkdirError, match="accumulate: got 8, expected 4"):
        regression.main(dataclasses.replace(quick(), accumulate=8), workdir=tmp_path / "run", quiet=True)

    file = tmp_path / "run" / "config.json"
    recorded = json.loads(file.read_text())
    file.write_text(json.dumps(recorded | {"accumulate": 0}))  # by a loop of one's own
    assert chunks.resolved(quick(), tmp_path / "run", init).accumulate == 1
    del recorded["accumulate"]
    file.write_text(json.dumps(recorded))
    assert chunks.resolved(quick(), tmp_path / "run", init).accumulate == 1
    regression.main(quick(), workdir=tmp_path / "run", quiet=True)
