"""Playing BoxWorld: what is shown, and the program on a terminal of the tests' own."""

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
import types
from pathlib import Path
from typing import Any

import pytest

from experiments.boxworld import play
from experiments.boxworld.config import ACTIONS, BoardConfig
from experiments.boxworld.game import Game
from simplicial import boxworld
from tests.experiments.boxworld.games import BOARD, on

ROOT = Path(__file__).resolve().parents[3]
LEFT, UP, RIGHT, DOWN = range(4)


@pytest.fixture(scope="module")
def bridge():
    """A game whose board is set by `on`."""
    return Game(boxworld.BRIDGE)


def test_terminal_colours_are_near_and_tell_hues_apart():
    levels = (0, 95, 135, 175, 215, 255)
    colours = play.terminal_colours()
    assert len(set(colours.values())) == len(colours) == 24
    for colour, index in colours.items():
        if index >= 232:
            meant = (8 + 10 * (index - 232),) * 3
        else:
            cube = index - 16
            meant = tuple(levels[i] for i in (cube // 36, cube // 6 % 6, cube % 6))
        assert max(abs(a - b) for a, b in zip(meant, colour, strict=True)) < 50


def test_tile_sizes():
    assert play.tile_size(9, 10, 24, 80) == (4, 2)
    assert play.tile_size(9, 10, 17, 80) == (2, 1)
    assert play.tile_size(7, 10, 40, 70) == (2, 1)
    assert play.tile_size(7, 10, 14, 57) == (2, 1)
    assert play.tile_size(7, 10, 14, 56) is None
    assert play.tile_size(7, 10, 13, 80) is None


def _without_a_size():
    """The environment but for what would be believed more than the terminal: some test runners set it."""
    return {name: value for name, value in os.environ.items() if name not in ("LINES", "COLUMNS")}


class Terminal:
    """The program on a pseudo-terminal, and what it paints."""

    def __init__(self, *flags, size):
        self.own, other = pty.openpty()
        fcntl.ioctl(other, termios.TIOCSWINSZ, struct.pack("HHHH", *size, 0, 0))
        self.process = subprocess.Popen(
            [sys.executable, "-m", "experiments.boxworld.play", *flags],
            stdin=other,
            stdout=other,
            stderr=other,
            cwd=ROOT,
            env={**_without_a_size(), "TERM": "xterm-256color", "JAX_PLATFORMS": "cpu"},
        )
        os.close(other)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        os.close(self.own)

    def press(self, keys, until, seconds=60.0):
        """Sends keys and control-l, which paints everything anew; what is painted up to `until`."""
        if keys:
            os.write(self.own, keys + b"\f")
        painted, end = "", time.monotonic() + seconds
        while until not in painted:
            assert time.monotonic() < end, f"{until!r} never came, but {painted!r}"
            if select.select([self.own], [], [], 0.5)[0]:
                try:
                    painted += os.read(self.own, 65536).decode()
                except OSError:  # the program has ended
                    break
        assert until in painted, painted
        return painted


def test_on_a_terminal():
    """Small and then larger; colours, arrows in the terminal's own codes, every other key, a clean end."""
    config = BoardConfig(min_length=1, max_length=1, bridge_probability=0.0)
    game = Game(config.make(), 5)
    actions = boxworld.solve(game.now.state) or []
    arrows = (b"\x1bOD", b"\x1bOA", b"\x1bOC", b"\x1bOB")
    with Terminal("--seed=5", "--length=1", "--bridge=0", size=(10, 40)) as terminal:
        terminal.press(b"", "terminal too small: needs 57 x 14")
        fcntl.ioctl(terminal.own, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        terminal.process.send_signal(signal.SIGWINCH)  # it is not the terminal that controls the process
        painted = terminal.press(b"\f", "q  quit")
        for tile in {tile.colour for row in game.tiles() for tile in row}:
            assert f"48;5;{play.terminal_colours()[tile]}m" in painted
        terminal.press(b"h", f"Hint: {ACTIONS[actions[0]]}. The Gem is")
        terminal.press(arrows[actions[0]], "step 1 ")
        terminal.press(b"u", "Undid one step.")
        terminal.press(b"".join(arrows[action] for action in actions), f"Solved in {len(actions)} steps.")
        terminal.press(b"r", "Board restarted.")
        terminal.press(b"n", "board 2 of seed 5")
        terminal.press(b"sd", "step 2 ")
        os.write(terminal.own, b"q")
        assert terminal.process.wait(30) == 0


def test_an_agent_on_a_terminal():
    with Terminal("--watch=boxworld/quick_simplicial", size=(24, 80)) as terminal:
        terminal.press(b"", "simplicial agent, board 1")
        terminal.press(b"", "You took key ")
        terminal.press(b"p", "board 1, paused")
        os.write(terminal.own, b"q")
        assert terminal.process.wait(30) == 0


def test_an_agent_of_the_other_world(monkeypatch):
    """It cannot play boards of another size."""
    given = dict.fromkeys(("length", "bridge", "distractors"))
    given |= {"watch": "boxworld/quick_simplicial", "env": "bridge"}
    monkeypatch.setattr(play.flags, "FLAGS", types.SimpleNamespace(**given))
    with pytest.raises(ValueError, match="--env: got 'bridge', expected 'standard' as of boxworld/quick_sim"):
        play.main()


def fake_curses(**fields):
    """Returns what a display takes from curses: colours of a terminal that has just enough of them."""
    usual = {
        "error": OSError, "curs_set": lambda visible: None, "has_colors": lambda: True, "COLORS": 256,
        "COLOR_PAIRS": 65, "KEY_LEFT": 260, "KEY_UP": 259, "KEY_RIGHT": 261, "KEY_DOWN": 258,
    }  # fmt: skip
    return types.SimpleNamespace(**(usual | fields))


def fake_window(rows, columns, **methods):
    """Returns a window, and the texts with their styles that are in it by their places."""
    painted = {}
    usual = {
        "getmaxyx": lambda: (rows, columns), "erase": painted.clear, "refresh": lambda: None,
        "addstr": lambda y, x, *text_and_style: painted.update({(y, x): text_and_style}),
    }  # fmt: skip
    return types.SimpleNamespace(**(usual | methods)), painted


def test_tiles_are_as_large_as_the_window_allows(bridge, monkeypatch):
    """Tiles of 4 x 2 characters: 7 rows of them fit 14 lines, 10 rows would not."""
    window, _ = fake_window(14, 200)
    sizes = []
    monkeypatch.setattr(play.Display, "_tile", lambda self, x, y, tile, size, is_held: sizes.append(size))
    play.Display(window, fake_curses(has_colors=lambda: False)).draw(on(bridge, BOARD))
    assert sizes == [(4, 2)] * 70


def test_every_colour_is_made_once_and_with_readable_ink(bridge):
    """Tiles of two lines have their text in the upper one."""
    made = {}
    curses = fake_curses(
        init_pair=lambda number, *colours: made.setdefault(number, []).append(colours),
        color_pair=lambda number: 1000 + number,
    )
    window, painted = fake_window(14, 200)
    game = on(bridge, BOARD)
    display = play.Display(window, curses)
    display.draw(game)
    assert list(made) == list(range(1, len(made) + 1))
    inks = set()
    for y, row in enumerate(game.tiles()):
        for x, tile in enumerate(row):
            text, style = painted[2 * y, 4 * x]
            assert text == tile.text.center(4)
            assert painted[2 * y + 1, 4 * x] == (" " * 4, style)
            ((ink, ground),) = made[style - 1000]
            assert ground == play.terminal_colours()[tile.colour]
            assert ink == (16 if play.is_bright(tile.colour) else 231)
            inks.add(ink)
    assert inks == {16, 231}
    for few in ({"COLORS": 255}, {"COLOR_PAIRS": 64}, {"has_colors": lambda: False}):
        assert not play.Display(window, fake_curses(**few)).has_colours


@pytest.mark.parametrize(
    ("width", "shown"),
    [
        (0, ""),
        (1, ""),
        (2, "t"),
        (30, "terminal too small: needs 57 "),
        (99, "terminal too small: needs 57 x 14"),
    ],
)
def test_a_small_window_says_so_as_far_as_it_can(bridge, width, shown):
    window, painted = fake_window(3, width)
    play.Display(window, fake_curses()).draw(on(bridge, BOARD))
    assert painted == {(0, 0): (shown,)}


def test_keys_do_what_the_panel_says():
    """Arrows and letters; others do nothing, control-l clears the window, and q ends the game."""
    done, arrows, waits = [], [260, 259, 261, 258], []
    names = ("next_board", "again", "undo", "hint", "pause", "tick")
    game: Any = types.SimpleNamespace(
        tiles=lambda: [[]], act=done.append, milliseconds=None,
        **{name: lambda name=name: done.append(name) for name in names},
    )  # fmt: skip
    typed = [*arrows, *map(ord, "awdsnruhpx"), -1, *map(ord, "\fq")]
    keys = iter(typed)
    window, _ = fake_window(
        1, 1, getch=lambda: next(keys), clear=lambda: done.append("clear"), timeout=waits.append
    )
    play.play(window, game, fake_curses())
    ways = [LEFT, UP, RIGHT, DOWN]
    assert done == [*ways, *ways, "next_board", "again", "undo", "hint", "pause", "tick", "clear"]
    assert next(keys, None) is None
    assert not waits
    game.milliseconds, keys = 20, iter([ord("q")])
    play.play(window, game, fake_curses())
    assert waits == [20]


def test_without_colours_tiles_are_letters_and_reversed(bridge):
    """Floor is dots, and what is not held bars."""
    window, painted = fake_window(14, 60)
    game = on(bridge, BOARD)
    curses = fake_curses(has_colors=lambda: False, A_NORMAL=0, A_REVERSE=1)
    play.Display(window, curses).draw(game)
    assert painted[0, 0] == ("@ ", 1)
    assert painted[2, 0] == (". ", 0)
    assert painted[3, 6] == ("* ", 1)
    assert painted[3, 8] == ("A ", 1)
    assert painted[0, 18] == ("| ", 0)
    assert painted[0, 22] == (game.panel()[0],)
