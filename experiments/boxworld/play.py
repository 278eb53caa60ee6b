"""BoxWorld for a person, in a terminal.

    python -m experiments.boxworld.play --env=bridge --length=2

The arrow keys (or w, a, s, d) move; n starts the next board, r the same board again, u undoes a step, h shows
the next move of a shortest solution, q quits. Each key has a colour and a letter. A box is two tiles: its
content and, to the right, its lock. The column to the right of the board shows what you hold. Fetch the Gem
(*).
"""

import contextlib
import dataclasses
import functools
import sys
import textwrap
from typing import Any

import jax
import numpy as np
from absl import app, flags
from scipy import optimize

from experiments import runtime
from experiments.boxworld.config import ACTIONS, WORLDS, BoardConfig
from experiments.boxworld.episodes import is_bright
from simplicial import boxworld
from simplicial.boxworld.rules import EMPTY, FLOOR, GEM, NO_KEY, PLAYER

PANEL = 34
"""Width of the text beside the board."""
HELP = ("arrows  move", "n  next board", "r  same board again", "u  undo", "h  hint", "q  quit")
_LINES = 8 + len(HELP)
_TILES = ((4, 2), (2, 1))
"""Sizes of a tile in characters, the larger first: about square, since characters are narrow."""
_WAYS = ((-1, 0), (0, -1), (1, 0), (0, 1))


@dataclasses.dataclass(frozen=True)
class Tile:
    """What is shown of a tile: its colour, and a letter on it."""

    colour: tuple[int, int, int]
    text: str = " "


@dataclasses.dataclass(frozen=True)
class Moment:
    """A state, how it came about, and the rewards so far."""

    state: boxworld.State
    message: str = ""
    rewards: float = 0.0


class Game:
    """Boards one after the other, every step of the present one kept to be undone."""

    def __init__(self, config: boxworld.BoxWorldConfig, seed: int = 0):
        """Draws the first board.

        Raises:
            ValueError: the config cannot be met.
        """
        boxworld.puzzles(config)  # refuses what cannot be met: the config is traced below
        # Compiled in half the time; one board a step is quick in any case.
        quickly = {"xla_backend_optimization_level": 0}
        self._reset = jax.jit(boxworld.reset, compiler_options=quickly)
        self._step = jax.jit(boxworld.step, compiler_options=quickly)
        self.config, self.seed, self.number = config, seed, 0
        self.history = [Moment(self._drawn())]

    def _drawn(self) -> boxworld.State:
        key = jax.random.fold_in(jax.random.key(self.seed), self.number)
        return jax.device_get(self._reset(key, self.config))

    @property
    def now(self) -> Moment:
        """Where the game is."""
        return self.history[-1]

    @property
    def is_over(self) -> bool:
        """Whether the episode has ended."""
        return bool(self.now.state.terminated or self.now.state.truncated)

    def act(self, action: int) -> None:
        """Makes a move; after the end it does nothing."""
        if self.is_over:
            self._say("It is over: n for the next board, u to undo.")
            return
        before = self.now
        state, outcome = jax.device_get(self._step(before.state, action, self.config))
        reward = float(outcome.reward)
        message = describe(before.state, state, action, reward)
        self.history.append(Moment(state, message, before.rewards + reward))

    def undo(self) -> None:
        """Goes a step back."""
        if len(self.history) > 1:
            self.history.pop()
            self._say("One step back.")
        else:
            self._say("This is the beginning.")

    def again(self) -> None:
        """Back to the beginning of this board."""
        self.history = [dataclasses.replace(self.history[0], message="The same board again.")]

    def next_board(self) -> None:
        """Draws another board."""
        self.number += 1
        self.history = [Moment(self._drawn(), "A new board.")]

    def hint(self) -> None:
        """Says the next move of a shortest solution."""
        actions = boxworld.solve(self.now.state)
        if self.is_over:
            self._say("It is over.")
        elif actions is None:
            self._say("There is no way to the Gem any more: u to undo.")
        else:
            self._say(f"Hint: {ACTIONS[actions[0]]}. The Gem is {len(actions)} steps away.")

    def _say(self, message: str) -> None:
        self.history[-1] = dataclasses.replace(self.now, message=message)

    def tiles(self) -> list[list[Tile]]:
        """What to show: the rows of the board, the inventory as their last column."""
        state = self.now.state
        names, palette = key_names(state.palette), state.palette.tolist()

        def tile(code: int, empty: tuple[int, int, int]) -> Tile:
            return Tile(empty) if code == EMPTY else Tile(tuple(palette[code]), names[code])

        rows = [
            [*(tile(code, FLOOR) for code in row), tile(held, NO_KEY)]
            for row, held in zip(state.grid.tolist(), state.inventory.tolist(), strict=True)
        ]
        x, y = state.player.tolist()
        rows[y][x] = Tile(PLAYER, "@")
        return rows

    def panel(self) -> list[str]:
        """The text beside the board."""
        now = self.now
        names = key_names(now.state.palette)
        held = " ".join(names[code] for code in now.state.inventory.tolist() if code != EMPTY)
        world = "Bridge BoxWorld" if self.config.gem_locks == 2 else "BoxWorld"
        return [
            f"{world}, board {self.number + 1} of seed {self.seed}",
            f"step {int(now.state.time)}   reward {now.rewards:g}",
            f"you hold: {held or 'nothing'}",
            "",
            *(textwrap.wrap(now.message, PANEL) + [""] * 3)[:3],
            "",
            *HELP,
        ]


def describe(before: boxworld.State, after: boxworld.State, action: int, reward: float) -> str:
    """What a move between two states did, in words."""
    names = key_names(before.palette)
    grid = np.pad(before.grid, 1, constant_values=EMPTY)
    (x, y), (way_x, way_y) = before.player.tolist(), _WAYS[action]
    x, y = x + way_x, y + way_y
    here, left, right = (int(grid[y + 1, x + 1 + i]) for i in (0, -1, 1))
    if reward > 0 and after.terminated:
        return f"The Gem! Solved in {int(after.time)} steps."
    if after.terminated:
        return f"Key {names[left]}, from a box that leads nowhere: lost. (u to undo)"
    if after.truncated:
        return f"{int(after.time)} steps are over."
    if reward > 0 and left == EMPTY:
        return f"You took the key {names[here]}."
    if reward > 0:
        return f"Key {names[here]} opened the box: you have {names[left]}."
    if not (0 <= x < before.grid.shape[1] and 0 <= y < before.grid.shape[0]):
        return "That is the edge of the board."
    if here == EMPTY:
        return ""
    if right != EMPTY:
        return "A box is opened at its lock, its right tile."
    if left == GEM:
        locks = [int(tile) for tile in before.grid[before.grid[:, x - 1] == GEM, x]]
        return f"The Gem's lock needs {' and '.join(names[lock] for lock in locks)}."
    return f"This lock needs the key {names[here]}."


def key_names(palette: Any) -> dict[int, str]:
    """A letter for every colour, the same for the same hue on every board; "*" for the Gem.

    The numbers of the colours would not do: they give the solution away.
    """
    distances = np.abs(np.asarray(palette, int)[1:, None] - boxworld.HUES.astype(int)[None]).sum(axis=-1)
    letters = [chr(ord("A") + int(hue)) for hue in np.argmin(distances, axis=1)]
    return {GEM: "*", **dict(enumerate(letters, 1))}


def tile_size(rows: int, cols: int, height: int, width: int) -> tuple[int, int] | None:
    """Width and height of the largest tiles, in characters, that fit a terminal; None if none do.

    `rows` and `cols` count the tiles of the board and the inventory, `height` and `width` characters.
    """
    for tile_width, tile_height in _TILES:
        if max(rows * tile_height, _LINES) <= height and cols * tile_width + 2 + PANEL < width:
            return tile_width, tile_height
    return None


@functools.cache
def terminal_colours() -> dict[tuple[int, int, int], int]:
    """The nearest of a terminal's 256 colours for each colour of a board, all different.

    Of the 256, the first 16 are the user's to choose; the others are a cube of 6 x 6 x 6 and 24 greys.
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
    """A game on a curses window; coloured where the terminal has 256 colours, letters always."""

    def __init__(self, window: Any, curses: Any):
        """Prepares a window of `curses`, the module, which not every system has."""
        self.window, self.curses = window, curses
        self.pairs: dict[tuple[int, int, int], int] = {}
        with contextlib.suppress(curses.error):  # a terminal that cannot hide its cursor
            curses.curs_set(0)
        self.has_colours = curses.has_colors() and curses.COLORS >= 256 and curses.COLOR_PAIRS > 64

    def style(self, tile: Tile) -> int:
        """The attribute that a tile is drawn with."""
        if not self.has_colours:
            return self.curses.A_REVERSE if tile.colour not in (FLOOR, NO_KEY) else self.curses.A_NORMAL
        if tile.colour not in self.pairs:
            number = len(self.pairs) + 1
            ink = 16 if is_bright(tile.colour) else 231
            self.curses.init_pair(number, ink, terminal_colours()[tile.colour])
            self.pairs[tile.colour] = number
        return self.curses.color_pair(self.pairs[tile.colour])

    def draw(self, game: Game) -> None:
        """Shows the game."""
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
                self.window.addstr(y, left, line[:PANEL])
        self.window.refresh()

    def _tile(self, x: int, y: int, tile: Tile, size: tuple[int, int], is_held: bool) -> None:
        width, height = size
        text = tile.text
        if not self.has_colours and not text.strip():  # what tells floor and inventory apart
            text = "|" if is_held else "."
        for line in range(height):
            shown = text.center(width) if line == (height - 1) // 2 else " " * width
            self.window.addstr(y * height + line, x * width, shown, self.style(tile))

    def _too_small(self, rows: int, cols: int, width: int) -> None:
        tile_width, tile_height = _TILES[-1]
        wanted = f"{cols * tile_width + 3 + PANEL} x {max(rows * tile_height, _LINES)}"
        self.window.addstr(0, 0, f"terminal too small, need {wanted}"[: max(0, width - 1)])


def play(window: Any, game: Game, curses: Any) -> None:
    """Shows the game on a window of `curses`, the module, and acts on the keys until q."""
    display = Display(window, curses)
    moves = {
        curses.KEY_LEFT: 0, curses.KEY_UP: 1, curses.KEY_RIGHT: 2, curses.KEY_DOWN: 3,
        ord("a"): 0, ord("w"): 1, ord("d"): 2, ord("s"): 3,
    }  # fmt: skip
    others = {ord("n"): game.next_board, ord("r"): game.again, ord("u"): game.undo, ord("h"): game.hint}
    while True:
        display.draw(game)
        key = window.getch()
        if key == ord("q"):
            return
        if key == ord("\f"):  # control-l: paint everything anew
            window.clear()
        elif key in moves:
            game.act(moves[key])
        elif key in others:
            others[key]()


def main() -> None:
    """The program."""
    given = flags.FLAGS
    config = BoardConfig(
        world=given.env,
        min_length=given.length,
        max_length=given.length,
        bridge_probability=given.bridge,
        min_distractors=given.distractors,
        max_distractors=given.distractors,
    ).make()
    try:
        import curses
    except ImportError:
        raise app.UsageError("this system's Python has no curses, which playing needs") from None
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise app.UsageError("playing needs a terminal: input and output must not be redirected")
    jax.config.update("jax_platforms", "cpu")
    print("one moment ...", flush=True)
    game = Game(config, given.seed)
    try:
        curses.wrapper(play, game, curses)
    except curses.error as error:
        raise app.UsageError(f"this terminal cannot be played in: {error}") from error
    except KeyboardInterrupt:
        pass


if __name__ == "__main__":
    flags.DEFINE_enum("env", "bridge", sorted(WORLDS), "which BoxWorld")
    flags.DEFINE_integer("seed", 0, "for the boards")
    flags.DEFINE_integer("length", None, "length of the solutions (default: as in the paper)")
    flags.DEFINE_integer("distractors", None, "number of distractors (default: as in the paper)")
    flags.DEFINE_float("bridge", None, "how often there is a bridge, from 0 to 1")
    runtime.run_program(main, reports=(ValueError,))
