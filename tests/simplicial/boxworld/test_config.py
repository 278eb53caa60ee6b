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
        (boxworld.BRIDGE, {"cols": 2}, r"cols: got .*, expected an integer of at least 3"),
        (boxworld.BRIDGE, {"traps": 0}, r"traps: got .*, expected an integer of at least 1"),
        (boxworld.BRIDGE, {"gem_locks": 3}, "gem_locks: got 3, expected 1 or 2"),
    ],
)
def test_settings_that_cannot_be_met_are_refused(config, changes, message):
    """Raised before anything is drawn, compiled or not, naming the setting."""
    config = config.replace(**changes)
    with pytest.raises(ValueError, match=message):
        boxworld.reset(jax.random.key(0), config)
    with pytest.raises(ValueError, match=message):
        jax.jit(lambda key: boxworld.reset(key, config))(jax.random.key(0))
