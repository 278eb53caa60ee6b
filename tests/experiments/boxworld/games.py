"""Games on boards of one's own, for the tests of what is played and of what is shown."""

import jax
import numpy as np

from experiments.boxworld.game import Moment
from simplicial import boxworld

FROM_BOARD = jax.jit(boxworld.from_board)


def on(game, tiles, trap=(-1, -1)):
    """The game on a board of one's own: colours by (x, y). Colour c has the letter of the c-th hue."""
    grid = np.full((7, 9), -1)
    for (x, y), colour in tiles.items():
        grid[y, x] = colour
    palette = np.concatenate([[[255] * 3], boxworld.HUES])
    state = FROM_BOARD(grid, palette, np.asarray([trap]), game.config)
    game.history = [Moment(jax.device_get(state))]
    return game


BOARD = {
    (3, 3): 0, (4, 3): 1, (3, 4): 0, (4, 4): 2,  # the Gem, behind A and B
    (1, 0): 3,  # C is loose
    (2, 1): 1, (3, 1): 3,  # A behind C
    (7, 0): 2,  # B is loose
    (6, 2): 2, (7, 2): 1,  # a trap: B behind A
}  # fmt: skip


def walk(game, *actions):
    """What each move is said to do."""
    said = []
    for action in actions:
        game.act(action)
        said.append(game.now.message)
    return said
