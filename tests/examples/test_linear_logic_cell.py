"""The example of a new program as a cell: its task, a short run, and the result of a full run."""

import jax
import pytest

from examples import linear_logic_cell as example
from tests.examples import small_example
from tests.simplicial.small import quickly


@pytest.mark.slow  # seconds of compiling
@pytest.mark.usefixtures("compiled_quickly")
def test_a_short_run_is_complete(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(example, "CELLS", ("program",))  # the LSTM is compiled by the slow test
    numbers = example.main(["--steps=2", f"--out={tmp_path}"])
    small_example.complete(numbers, tmp_path, "held_out.png")
    assert "got the linear variable m : !(A -o A) -o A -o A, expected none" in numbers["refused"]
    printed = capsys.readouterr().out
    assert r"program   \!m. \!n. \!x. \!y. n !(\z. y (m !x z))" in printed
    error = float(printed.split("(y x^2)^3 up to ")[1].split()[0])
    assert error < 1e-5


def test_cups_follow_from_some_shuffles():
    """The tokens determine the cup, by shuffles that the test finds from tokens of one round."""
    draw = quickly(
        lambda key: (example.tokens(key, 400, 1, ((0, 1),)), example.tokens(key, 50, 4, example.TRAINED))
    )
    (x, cups), (others, _) = draw(jax.random.key(0))
    token, cup = x[:, 0], cups[:, 0]
    b = token[:, -example.SHUFFLES :].argmax(-1)
    for which in range(example.SHUFFLES):
        assert len(set(cup[b == which])) == 1  # the ball starts under cup 0
    pairs = set(zip(*(others[..., at : at + 4].argmax(-1).ravel().tolist() for at in (0, 4)), strict=True))
    assert pairs == set(example.TRAINED)
    assert not pairs & set(example.HELD_OUT)


@pytest.mark.slow
def test_the_program_runs_on_pairs_that_were_held_out(tmp_path):
    numbers = small_example.run("linear_logic_cell", tmp_path)
    _, trained, held_out, longer = numbers["program"]["curve"][-1]
    assert min(trained, held_out) > 0.98
    assert longer > 0.9  # four times the length: small errors of the operators add up
    _, trained, held_out, longer = numbers["LSTM"]["curve"][-1]
    assert trained > 0.7
    assert max(held_out, longer) < 0.5
