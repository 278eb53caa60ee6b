"""Invalid settings, and the errors they raise."""

import jax
import pytest

from simplicial import boxworld


@pytest.mark.parametrize(
    ("config", "changes", "message"),
    [
        (
            boxworld.BRIDGE,
            {"max_length": 4},
            "10 slots with the bridge, expected at most 8 for rows=7, cols=9",
        ),
        (
            boxworld.BRIDGE,
            {"max_length": 3, "rows": 5},
            "8 slots with the bridge, expected at most 5 for rows=5, cols=9",
        ),
        (boxworld.STANDARD, {"max_length": 8}, "13 slots, expected at most 12 for rows=9, cols=9"),
        (boxworld.STANDARD, {"max_distractors": 5}, r"traps: got .*, expected at least 5"),
        (boxworld.STANDARD, {"branch_length": 2}, r"traps: got .*, expected at least 8"),
        (boxworld.BRIDGE, {"max_distractors": 1}, r"traps: got .*, expected at least 2 .* and a bridge"),
        (boxworld.BRIDGE, {"max_distractors": 1, "traps": 2}, "9 slots with the bridge, expected at most 8"),
        (boxworld.STANDARD, {"max_length": 21, "rows": 41}, "25 colours, expected at most 20"),
        (boxworld.BRIDGE, {"min_length": 0}, r"min_length: got .*, expected an integer of at least 1"),
        (boxworld.BRIDGE, {"max_length": 1.5}, r"max_length: got .*, expected an integer"),
        (
            boxworld.BRIDGE,
            {"min_length": 3, "max_length": 2},
            "min_length: got 3, expected at most max_length = 2",
        ),
        (
            boxworld.STANDARD,
            {"min_distractors": 4, "max_distractors": 3},
            "min_distractors: got 4, expected at most",
        ),
        (boxworld.STANDARD, {"min_distractors": -1}, "min_distractors: got -1"),
        (
            boxworld.BRIDGE,
            {"bridge_probability": 1.1},
            "bridge_probability: got 1.1, expected a number between 0 and 1",
        ),
        (
            boxworld.BRIDGE,
            {"bridge_probability": float("nan")},
            "bridge_probability: got nan, expected a finite number",
        ),
        (
            boxworld.STANDARD,
            {"bridge_probability": 0.5},
            "bridge_probability: got 0.5, expected 0 for a Gem with one lock",
        ),
        (boxworld.BRIDGE, {"horizon": -1}, "horizon: got -1"),
        (boxworld.BRIDGE, {"rows": 4}, "expected at least 5 x 6"),
        (boxworld.BRIDGE, {"cols": 5}, "expected at least 5 x 6"),
        (boxworld.BRIDGE, {"bridge_probability": -0.1}, "bridge_probability: got -0.1"),
        (boxworld.STANDARD, {"branch_length": 0}, "branch_length: got 0, expected an integer of at least 1"),
        (boxworld.STANDARD, {"rows": 2}, r"rows: got 2, expected an integer of at least 3"),
        (boxworld.STANDARD, {"traps": -1}, r"traps: got -1, expected an integer of at least 0"),
        (boxworld.BRIDGE, {"cols": 2}, r"cols: got .*, expected an integer of at least 3"),
        (boxworld.BRIDGE, {"traps": 0}, r"traps: got .*, expected an integer of at least 1"),
        (boxworld.BRIDGE, {"cols": 128}, "cols: got 128, expected at most 127"),
        (boxworld.STANDARD, {"rows": 129}, "rows: got 129, expected at most 127"),
        (boxworld.BRIDGE, {"gem_locks": 3}, "gem_locks: got 3, expected 1 or 2"),
    ],
)
def test_settings_that_cannot_be_met_are_refused(config, changes, message):
    """Raised before anything is drawn, compiled or not, naming the setting."""
    config = config.replace(**changes)
    with pytest.raises(ValueError, match=message):
        boxworld.reset(jax.random.key(0), config)
    with pytest.raises(ValueError, match=message):
        jax.eval_shape(lambda key: boxworld.reset(key, config), jax.random.key(0))


def test_twenty_colours_are_enough_for_a_puzzle_of_twenty_keys():
    """And as many slots as it has boxes and loose keys: 17 keys of the path and three of traps."""
    config = boxworld.STANDARD.replace(max_length=17, max_distractors=3, traps=3, rows=15, cols=9)
    assert config.num_slots == 21
    assert boxworld.puzzles(config)[-1] == (17, 0, 0)


def test_the_papers_settings():
    """Section 3: boards of 9 x 9 and 7 x 9, lengths up to 5 and 3, distractors or bridges, no horizon."""
    standard, bridge = boxworld.STANDARD, boxworld.BRIDGE
    assert boxworld.BoxWorldConfig() == bridge.replace(max_length=1, bridge_probability=0.0)
    assert (standard.rows, standard.cols, standard.gem_locks) == (9, 9, 1)
    assert (standard.min_length, standard.max_length, standard.bridge_probability) == (1, 5, 0)
    assert (standard.min_distractors, standard.max_distractors, standard.branch_length) == (0, 4, 1)
    assert (bridge.rows, bridge.cols, bridge.gem_locks) == (7, 9, 2)
    assert (bridge.min_length, bridge.max_length, bridge.bridge_probability) == (1, 3, 0.5)
    assert (bridge.min_distractors, bridge.max_distractors, bridge.branch_length) == (0, 0, 1)
    assert (standard.horizon, bridge.horizon, standard.traps, bridge.traps) == (0, 0, 4, 1)
