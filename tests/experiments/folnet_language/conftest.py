"""Finished runs of both kinds, since their programs take long to compile."""

import pytest

from experiments.folnet_language import train
from tests import workers
from tests.experiments.folnet_language.small import small, write_pairs
from tests.experiments.folnet_pretrain.small import write_text


@pytest.fixture(scope="session")
def text_run(tmp_path_factory):
    """Config, workdir and result of a language model of four steps; do not continue it."""
    with workers.only_one(tmp_path_factory, "language_text") as folder:
        config = small(write_text(folder), beams=1)
        return config, folder / "run", train.main(config, workdir=folder / "run")


@pytest.fixture(scope="session")
def pairs_run(tmp_path_factory):
    """Config, workdir and result of an encoder-decoder of four steps without samples; do not continue it."""
    with workers.only_one(tmp_path_factory, "language_pairs") as folder:
        config = small(write_pairs(folder), samples=0)
        return config, folder / "run", train.main(config, workdir=folder / "run")
