"""Reading, releasing and unpacking trained models, and errors for other folders."""

import dataclasses
from typing import ClassVar

import pytest

from experiments.runtime import CheckpointError, RunConfig, releasing
from tests.experiments.runtime.test_packing import abstract, workdir  # noqa: F401


@dataclasses.dataclass
class Config(RunConfig):
    """The config of a small run."""

    experiment: ClassVar[str] = "line"

    width: int = 3


def test_a_run_is_released_and_continued(workdir, tmp_path):  # noqa: F811
    folder, again = tmp_path / "folder", tmp_path / "again"
    assert not releasing.is_released(workdir)
    summary = releasing.transfer(workdir, folder, abstract(), release=True)
    assert summary == f"{folder / 'state.safetensors'}: 0.0 MB"
    assert releasing.is_released(folder)
    summary = releasing.transfer(folder, again, abstract(), release=False)
    assert summary == f"{again}: step 5; the run's own command continues from there"
    for path in (workdir, folder, again):
        restored = releasing.restore(path, abstract())
        assert (restored.step, restored.progress) == (5, {"train_seconds": 2.5})
    assert releasing.restore(workdir, abstract(), step=3).step == 3
    with pytest.raises(CheckpointError, match="got step 3, expected 5, the only one there"):
        releasing.restore(folder, abstract(), step=3)
    with pytest.raises(CheckpointError, match="got no checkpoint"):
        releasing.restore(tmp_path, abstract())


def test_a_config_of_another_program_is_reported(workdir):  # noqa: F811
    assert releasing.read_run_config(Config, workdir) == Config(steps=9)
    (workdir / "config.json").write_text('{"depth": 2}')
    with pytest.raises(ValueError, match=r"not a run of experiments\.line: .*got field 'depth'"):
        releasing.read_run_config(Config, workdir)
    (workdir / "config.json").write_text('{"steps": 0}')
    with pytest.raises(
        ValueError, match=r"not a run of experiments\.line: steps: got 0, expected at least 1"
    ):
        releasing.read_run_config(Config, workdir)
