"""Boards set up by hand: invalid boards, and the puzzle type of valid ones."""

import jax
import numpy as np
import pytest

from simplicial import boxworld

pytestmark = pytest.mark.usefixtures("compiled_quickly")


def board(tiles, rows=7, cols=9):
    """Returns a board from {(x, y): colour}, with a two-lock Gem at (1, 1) and its two loose keys."""
    grid = np.full((rows, cols), -1)
    base = {(1, 1): 0, (2, 1): 1, (1, 2): 0, (2, 2): 2, (4, 1): 1, (4, 3): 2}
    for (x, y), colour in {**base, **tiles}.items():
        grid[y, x] = colour
    return grid


PALETTE = np.arange(63).reshape(21, 3)
NO_LOCKS = np.full((1, 2), -1)
TWO_TRAPS = boxworld.BRIDGE.replace(traps=2)
FROM_BOARD = jax.jit(lambda grid, locks: boxworld.from_board(grid, PALETTE, locks, TWO_TRAPS))
STANDARD = jax.jit(lambda grid, locks: boxworld.from_board(grid, PALETTE, locks, boxworld.STANDARD))


@pytest.mark.parametrize(
    ("grid", "palette", "locks", "message"),
    [
        (board({(4, 5): 21, (6, 0): 20}), PALETTE, NO_LOCKS, r"unknown colours \[21\]"),
        (board({(4, 5): 21, (6, 0): -2}), PALETTE, NO_LOCKS, r"unknown colours \[-2, 21\]"),
        (board({(4, 5): -2}), PALETTE, NO_LOCKS, r"unknown colours \[-2\]"),
        (np.full((7, 9), -1), PALETTE, NO_LOCKS, "no Gem"),
        (board({(1, 2): -1, (2, 2): -1}), PALETTE, NO_LOCKS, r"2 lock\(s\)"),
        (board({(2, 2): -1}), PALETTE, NO_LOCKS, r"2 lock\(s\)"),
        (board({(7, 5): 0}), PALETTE, NO_LOCKS, r"2 lock\(s\)"),
        (board({(0, 0): 3}), PALETTE, NO_LOCKS, r"\(0, 0\)"),
        (board({(4, 5): 3, (5, 5): 4, (6, 5): 5}), PALETTE, NO_LOCKS, "three adjacent tiles"),
        (board({(6, y): 3 for y in range(6)}), PALETTE, NO_LOCKS, "8 loose keys"),
        (board({})[:, :8], PALETTE, NO_LOCKS, r"grid: got shape \(7, 8\), expected \(7, 9\)"),
        (board({}).astype(float), PALETTE, NO_LOCKS, "grid: got dtype float32, expected integers"),
        (board({}), PALETTE[:20], NO_LOCKS, r"palette: got shape \(20, 3\), expected \(21, 3\)"),
        (board({}), PALETTE - 1, NO_LOCKS, "palette: got values from -1 to 61, expected 0 to 255"),
        (board({}), PALETTE + 194, NO_LOCKS, "palette: got values from 194 to 256, expected 0 to 255"),
        (board({}), PALETTE / 2, NO_LOCKS, "palette: got dtype float32, expected integers"),
        (board({}), PALETTE, np.full((2, 2), -1), r"distractor_locks: got shape"),
        (board({}), PALETTE, np.full((1, 3), -1), r"distractor_locks: got shape \(1, 3\)"),
        (board({}), PALETTE, np.full(2, -1), r"distractor_locks: got shape \(2,\)"),
        (board({}), PALETTE, np.asarray([[4, 1]]), r"\(4, 1\), expected a lock's place"),
        (board({}), PALETTE, np.asarray([[9, 1]]), r"\(9, 1\), expected a lock's place"),
        (board({}), PALETTE, np.asarray([[5, 1]]), r"\(5, 1\), expected a lock's place"),  # right of a key
        (board({(0, 5): 3, (8, 5): 4}), PALETTE, np.asarray([[0, 5]]), r"\(0, 5\), expected a lock's place"),
        (board({(4, 6): 3, (5, 6): 4}), PALETTE, np.asarray([[5, -1]]), r"\(5, -1\), expected a lock"),
        (board({}), PALETTE, np.asarray([[5, 7]]), r"\(5, 7\), expected a lock's place"),
        (board({(0, 1): 5}), PALETTE, NO_LOCKS, "three adjacent tiles"),
        (board({(1, 2): -1, (2, 2): -1, (4, 5): 0, (5, 5): 2}), PALETTE, NO_LOCKS, r"2 lock\(s\)"),
        (board({(1, 2): -1, (2, 2): -1, (1, 3): 0, (2, 3): 2}), PALETTE, NO_LOCKS, r"2 lock\(s\)"),
    ],
)
def test_boards_that_are_none_are_refused(grid, palette, locks, message):
    """The error states the problem."""
    with pytest.raises(ValueError, match=message):
        boxworld.from_board(grid, palette, locks, boxworld.BRIDGE)


def test_boards_at_the_bounds_are_accepted():
    """Colour 20, as many loose keys as rows, a lock in the last column and colours from 0 to 255."""
    grid = board({(6, y): 20 for y in range(5)} | {(7, 6): 3, (8, 6): 4})
    palette = PALETTE + 193
    palette[0] = 0
    state = jax.jit(lambda: boxworld.from_board(grid, palette, np.asarray([[8, 6]]), boxworld.BRIDGE))()
    np.testing.assert_array_equal(state.grid, grid)
    np.testing.assert_array_equal(state.palette, palette)


def test_shapes_are_refused_under_jit_too():
    """Shapes are checked even where values are unknown."""
    make = jax.jit(lambda grid: boxworld.from_board(grid, PALETTE, NO_LOCKS, boxworld.BRIDGE))
    with pytest.raises(ValueError, match="grid: got shape"):
        make(board({})[:-1])
    with pytest.raises(ValueError, match="gem_locks: got 3"):
        boxworld.from_board(board({}), PALETTE, NO_LOCKS, boxworld.BRIDGE.replace(gem_locks=3))


def test_what_is_known_is_checked_under_jit():
    """A lock without its box is found if the grid and the locks are known, and neither alone is checked."""

    def with_grid(grid):
        return boxworld.from_board(grid, PALETTE, np.asarray([[5, 5]]), boxworld.BRIDGE)

    def with_locks(locks):
        return boxworld.from_board(board({}), PALETTE, locks, boxworld.BRIDGE)

    assert jax.eval_shape(with_grid, board({})).grid.shape == (7, 9)
    assert jax.eval_shape(with_locks, NO_LOCKS).grid.shape == (7, 9)
    with pytest.raises(ValueError, match="expected a lock's place"):
        jax.eval_shape(lambda: with_locks(np.asarray([[5, 5]])))


@pytest.mark.parametrize(
    ("tiles", "locks", "expected"),
    [
        ({}, NO_LOCKS, (1, 0, 0, 0)),
        ({(4, 5): 2, (5, 5): 1}, np.asarray([[5, 5]]), (1, 1, 2, 0)),
        ({(4, 5): 1, (5, 5): 2}, np.asarray([[5, 5]]), (1, 2, 1, 0)),  # from the lower path to the upper
        ({(4, 5): 7, (5, 5): 1}, np.asarray([[5, 5]]), (1, 0, 0, 1)),  # a distractor, no bridge
        ({(5, 1): 9}, NO_LOCKS, (0, 0, 0, 0)),  # the key of 1 is in a box that nothing opens
        ({(5, 1): 9, (5, 3): 8, (7, 5): 8, (7, 1): 9}, NO_LOCKS, (2, 0, 0, 0)),
        ({(5, 3): 9}, NO_LOCKS, (0, 0, 0, 0)),  # or the other one
        ({(5, 1): 2, (5, 3): 1}, NO_LOCKS, (0, 0, 0, 0)),  # each path is the other's beginning
        ({(5, 3): 8, (7, 5): 8}, NO_LOCKS, (2, 0, 0, 0)),  # paths of one and of two keys
        ({(5, 1): 8, (7, 5): 8}, NO_LOCKS, (2, 0, 0, 0)),
        ({(5, 3): 8, (7, 5): 8, (7, 3): 8, (8, 3): 1}, np.asarray([[8, 3]]), (2, 1, 4, 0)),
    ],
)
def test_puzzle_types_of_boards_made_by_hand(tiles, locks, expected):
    """The type does not depend on the numbers of the colours."""
    state = FROM_BOARD(board(tiles), locks)
    kind = boxworld.puzzle_type(state)
    assert (kind.solution_length, kind.bridge_lock, kind.bridge_key, kind.distractors) == expected
    np.testing.assert_array_equal(state.traps, [*locks, (-1, -1)], "the rest is unused")


def test_boards_of_one_lock_made_by_hand():
    """A path through all twenty colours, and a distractor with a key of the path, which is none on it."""
    longest = np.full((9, 9), -1)
    slots = [(x, y) for y in range(9) for x in (1, 4, 7)]
    for colour, (x, y) in enumerate(slots[:20]):
        longest[y, x : x + 2] = colour, colour + 1
    longest[slots[20][::-1]] = 20
    state = STANDARD(longest, np.full((2, 2), -1))
    np.testing.assert_array_equal(state.puzzle, (20, 0, 0, 0))
    grid = np.full((9, 9), -1)
    tiles = {(1, 1): 0, (2, 1): 1, (4, 1): 1, (4, 3): 2, (0, 5): 1, (1, 5): 2, (4, 7): 7, (5, 7): 1}
    for (x, y), colour in tiles.items():
        grid[y, x] = colour
    state = STANDARD(grid, np.asarray([(5, 7), (1, 5)]))
    np.testing.assert_array_equal(state.puzzle, (1, 0, 0, 2))
    np.testing.assert_array_equal(state.traps, [(5, 7), (1, 5), (-1, -1), (-1, -1)])
