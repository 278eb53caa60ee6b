"""The attention of tokamax and cuEquivariance gives our results, if they are installed."""

import importlib

import jax
import pytest

from benchmarks.peers import comparing, libraries, subjects

pytestmark = pytest.mark.filterwarnings("ignore")  # theirs
SMALL = subjects.subjects(subjects.SMALL)


@pytest.mark.parametrize("key", ["tokamax", "cuequivariance"])
@pytest.mark.parametrize("name", ["trans, odd", "self-attention by assoc and join"])
def test_attention(key, name):
    library = libraries.LIBRARIES[key]
    pytest.importorskip(library.package)
    side = importlib.import_module(library.side)
    subject = SMALL[name]()
    ours = comparing.JaxProgram(subject)
    with jax.numpy_rank_promotion("allow"):  # they do
        (make,) = side.programs(subject).values()
        program = make()
        for direction in comparing.DIRECTIONS:
            found = program.arrays(direction, program.call(direction)())
            expected = ours.arrays(direction, ours.call(direction)())
            assert comparing.difference(found, expected)[0] < 1e-5
    assert side.programs(SMALL["trans, odd, causal"]()) == {}
    assert "not_compared" in side.about()
