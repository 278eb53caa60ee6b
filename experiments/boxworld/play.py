"""Plays BoxWorld interactively in a terminal.

    python -m experiments.boxworld.play --env=bridge --length=2
    python -m experiments.boxworld.play --watch=boxworld/quick_simplicial     # a trained agent plays

The arrow keys (or w, a, s, d) move. n starts a new board, r restarts the current one, u undoes a step, h
shows the next move of a shortest solution, and q quits. Each key has a colour and a letter. A box has two
tiles: its content on the left and its lock on the right. The column to the right of the board is the
inventory. Collect the Gem (*) to win.

`--watch` is a run's directory, a released folder, or the name of a released model. The agent plays the boards
that it was trained on, or others that `--length`, `--distractors` and `--bridge` ask for. p pauses it.
"""

import contextlib
import dataclasses
import functools
import sys
from typing import Any

import jax
import numpy as np
from absl import app, flags
from scipy import optimize

from experiments import runtime
from experiments.boxworld import load
from experiments.boxworld.config import WORLDS, BoardConfig
from experiments.boxworld.episodes import is_bright
from experiments.boxworld.game import PANEL_HEIGHT, PANEL_WIDTH, Game, Tile, Watched
from simplicial import boxworld
from simplicial.boxworld.rules import FLOOR, NO_KEY, PLAYER

_TILES = ((4, 2), (2, 1))
"""Tile sizes in characters (width, height), largest first; about square, since characters are narrow."""


def tile_size(rows: int, cols: int, height: int, width: int) -> tuple[int, int] | None:
    """Returns the width and height, in characters, of the largest tiles that fit; None if none do.

    Args:
        rows: rows of tiles.
        cols: columns of tiles, including the inventory.
        height: height of the terminal in characters.
        width: width of the terminal in characters.
    """
    for tile_width, tile_height in _TILES:
        if max(rows * tile_height, PANEL_HEIGHT) <= height and cols * tile_width + 2 + PANEL_WIDTH < width:
            return tile_width, tile_height
    return None


@functools.cache
def terminal_colours() -> dict[tuple[int, int, int], int]:
    """Maps each colour of a board to a different, nearby colour of a 256-colour terminal.

    The first 16 colours are skipped because users can redefine them. The others are a 6 x 6 x 6 cube and 24
    greys.
    """
    levels = np.asarray((0, 95, 135, 175, 215, 255))
    cube = levels[np.indices((6, 6, 6)).reshape(3, -1).T]
    greys = np.repeat(8 + 10 * np.arange(24)[:, None], 3, axis=1)
    offered = np.concatenate([cube, greys])
    shown = np.concatenate([boxworld.HUES.astype(int), [(255, 255, 255), FLOOR, NO_KEY, PLAYER]])
    distances = ((shown[:, None] - offered[None]) ** 2).sum(axis=-1)
    _, chosen = optimize.linear_sum_assignment(distances)
    return {tuple(colour): 16 + int(index) for colour, index in zip(shown.tolist(), chosen, strict=True)}


class Display:
    """Draws a game in a curses window, with colours if the terminal has 256 and letters in any case."""

    def __init__(self, window: Any, curses: Any):
        """Sets up the window; `curses` is the module, passed in because not every system has it."""
        self.window, self.curses = window, curses
        self.pairs: dict[tuple[int, int, int], int] = {}
        with contextlib.suppress(curses.error):  # some terminals cannot hide the cursor
            curses.curs_set(0)
        self.has_colours = curses.has_colors() and curses.COLORS >= 256 and curses.COLOR_PAIRS > 64

    def style(self, tile: Tile) -> int:
        """Returns the curses attribute for drawing a tile."""
        if not self.has_colours:
            return self.curses.A_REVERSE if tile.colour not in (FLOOR, NO_KEY) else self.curses.A_NORMAL
        if tile.colour not in self.pairs:
            number = len(self.pairs) + 1
            ink = 16 if is_bright(tile.colour) else 231
            self.curses.init_pair(number, ink, terminal_colours()[tile.colour])
            self.pairs[tile.colour] = number
        return self.curses.color_pair(self.pairs[tile.colour])

    def draw(self, game: Game) -> None:
        """Redraws the whole window, or a message if it is too small."""
        self.window.erase()
        height, width = self.window.getmaxyx()
        tiles = game.tiles()
        size = tile_size(len(tiles), len(tiles[0]), height, width)
        if size is None:
            self._too_small(len(tiles), len(tiles[0]), width)
        else:
            for y, row in enumerate(tiles):
                for x, tile in enumerate(row):
                    self._tile(x, y, tile, size, is_held=x == len(row) - 1)
            left = len(tiles[0]) * size[0] + 2
            for y, line in enumerate(game.panel()):
                self.window.addstr(y, left, line[:PANEL_WIDTH])
        self.window.refresh()

    def _tile(self, x: int, y: int, tile: Tile, size: tuple[int, int], is_held: bool) -> None:
        width, height = size
        text = tile.text
        if not self.has_colours and not text.strip():  # distinguishes floor from inventory
            text = "|" if is_held else "."
        for line in range(height):
            shown = text.center(width) if line == (height - 1) // 2 else " " * width
            self.window.addstr(y * height + line, x * width, shown, self.style(tile))

    def _too_small(self, rows: int, cols: int, width: int) -> None:
        tile_width, tile_height = _TILES[-1]
        wanted = f"{cols * tile_width + 3 + PANEL_WIDTH} x {max(rows * tile_height, PANEL_HEIGHT)}"
        self.window.addstr(0, 0, f"terminal too small: needs {wanted}"[: max(0, width - 1)])


def play(window: Any, game: Game, curses: Any) -> None:
    """Runs the game in a curses window until the user presses q."""
    display = Display(window, curses)
    moves = {
        curses.KEY_LEFT: 0, curses.KEY_UP: 1, curses.KEY_RIGHT: 2, curses.KEY_DOWN: 3,
        ord("a"): 0, ord("w"): 1, ord("d"): 2, ord("s"): 3,
    }  # fmt: skip
    others = {
        ord("n"): game.next_board, ord("r"): game.again, ord("u"): game.undo, ord("h"): game.hint,
        ord("p"): game.pause, -1: game.tick,
    }  # fmt: skip
    if game.milliseconds is not None:
        window.timeout(game.milliseconds)  # then getch returns -1
    while True:
        display.draw(game)
        key = window.getch()
        if key == ord("q"):
            return
        if key == ord("\f"):  # control-l: redraw from scratch
            window.clear()
        elif key in moves:
            game.act(moves[key])
        elif key in others:
            others[key]()


def main() -> None:
    """Runs the program with the values of its flags."""
    given = flags.FLAGS
    jax.config.update("jax_platforms", "cpu")
    changes: dict[str, Any] = {
        "min_length": given.length,
        "max_length": given.length,
        "bridge_probability": given.bridge,
        "min_distractors": given.distractors,
        "max_distractors": given.distractors,
    }
    changes = {name: value for name, value in changes.items() if value is not None}
    trained = load.load(given.watch) if given.watch else None
    board = trained.run.board if trained else BoardConfig(world=given.env or "bridge")
    if trained and given.env not in (None, board.world):
        raise ValueError(f"--env: got {given.env!r}, expected {board.world!r} as of {given.watch}")
    config = dataclasses.replace(board, **changes).make()
    try:
        import curses
    except ImportError:
        raise app.UsageError("curses: not available in this Python, but required to play") from None
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise app.UsageError("stdin, stdout: got a redirected stream, expected a terminal")
    print("Compiling ...", flush=True)
    game = Watched(trained, config, given.seed) if trained else Game(config, given.seed)
    try:
        curses.wrapper(play, game, curses)
    except curses.error as error:
        raise app.UsageError(f"terminal: not usable with curses: {error}") from error
    except KeyboardInterrupt:
        pass


if __name__ == "__main__":
    flags.DEFINE_enum("env", None, sorted(WORLDS), "the BoxWorld to play (default: bridge, or the agent's)")
    flags.DEFINE_string("watch", None, "a trained agent that plays: a run, a released folder or its name")
    flags.DEFINE_integer("seed", 0, "seed for the boards")
    flags.DEFINE_integer("length", None, "solution length (default: as in the paper)")
    flags.DEFINE_integer("distractors", None, "number of distractors (default: as in the paper)")
    flags.DEFINE_float("bridge", None, "probability of a bridge, from 0 to 1 (default: as in the paper)")
    runtime.run_program(main, reports=(ValueError, runtime.CheckpointError))
