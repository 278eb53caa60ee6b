"""What the experiments' tests share: a finished run of BoxWorld, whose programs take long to compile."""

import pytest

from experiments import boxworld, folnet_pretrain
from tests import compiling
from tests.experiments import small_folnet
from tests.experiments.small_boxworld import small


@pytest.fixture(scope="session")
def boxworld_run(tmp_path_factory):
    """Workdir and result of the smallest run, without interruption; to be looked at, not continued."""
    workdir = tmp_path_factory.mktemp("boxworld") / "run"
    with compiling.quickly():  # as in all modules that compare it with runs of their own
        return workdir, boxworld.main(small(), workdir=workdir)


@pytest.fixture(scope="session")
def folnet_run(tmp_path_factory):
    """Config, workdir and results of the smallest pretraining with its baseline; to be looked at."""
    folder = tmp_path_factory.mktemp("folnet")
    source = small_folnet.write_text(folder)
    config = small_folnet.small(source, baseline="transformer", schedule="linear")  # for as many steps alone
    with compiling.quickly():
        return config, folder / "run", folnet_pretrain.main(config, workdir=folder / "run")
