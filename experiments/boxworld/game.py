"""A game of BoxWorld on a sequence of boards, played by a person or by a trained agent; `play` shows it."""

import dataclasses
import textwrap
from typing import Any, ClassVar

import jax
import numpy as np

from experiments.boxworld import load
from experiments.boxworld.config import ACTIONS
from simplicial import boxworld
from simplicial.boxworld.rules import EMPTY, FLOOR, GEM, NO_KEY, PLAYER

HOLD = 8
"""Number of ticks for which the end of an agent's episode is shown."""
PANEL_WIDTH, PANEL_HEIGHT = 34, 14
"""Size of the text panel in characters."""
_QUICKLY = {"xla_backend_optimization_level": 0}
"""Halves the time of compilation; a single board is fast enough without optimization."""
_WAYS = ((-1, 0), (0, -1), (1, 0), (0, 1))


@dataclasses.dataclass(frozen=True)
class Tile:
    """A tile to draw: its colour and the letter on it."""

    colour: tuple[int, int, int]
    text: str = " "


@dataclasses.dataclass(frozen=True)
class Moment:
    """A state with the message about the last move and the sum of rewards so far."""

    state: boxworld.State
    message: str = ""
    rewards: float = 0.0


class Game:
    """A game on a sequence of boards, with the history of the current one for undo.

    Attributes:
        help: the keys, as the panel explains them.
        milliseconds: time between ticks; None if nothing happens by itself.
    """

    help: ClassVar[tuple[str, ...]] = (
        "arrows  move", "n  new board", "r  restart board", "u  undo", "h  hint", "q  quit"
    )  # fmt: skip
    milliseconds: ClassVar[int | None] = None

    def __init__(self, config: boxworld.BoxWorldConfig, seed: int = 0):
        """Draws the first board.

        Raises:
            ValueError: no puzzle satisfies the config.
        """
        boxworld.puzzles(config)  # raises for invalid configs, which the traced functions below cannot do
        self._reset = jax.jit(boxworld.reset, compiler_options=_QUICKLY)
        self._step = jax.jit(boxworld.step, compiler_options=_QUICKLY)
        self.config, self.seed, self.number = config, seed, 0
        self.history = [Moment(self._drawn())]

    def _drawn(self) -> boxworld.State:
        key = jax.random.fold_in(jax.random.key(self.seed), self.number)
        return jax.device_get(self._reset(key, self.config))

    @property
    def now(self) -> Moment:
        """The latest moment of the history."""
        return self.history[-1]

    @property
    def is_over(self) -> bool:
        """Whether the episode has ended."""
        return bool(self.now.state.terminated or self.now.state.truncated)

    def act(self, action: int) -> None:
        """Makes a move; does nothing once the episode has ended."""
        if self.is_over:
            self._say("The game is over. Press n for a new board or u to undo.")
            return
        before = self.now
        state, outcome = jax.device_get(self._step(before.state, action, self.config))
        reward = float(outcome.reward)
        message = describe(before.state, state, action, reward)
        self.history.append(Moment(state, message, before.rewards + reward))

    def undo(self) -> None:
        """Returns to the state before the last move."""
        if len(self.history) > 1:
            self.history.pop()
            self._say("Undid one step.")
        else:
            self._say("Nothing to undo.")

    def again(self) -> None:
        """Restarts the current board."""
        self.history = [dataclasses.replace(self.history[0], message="Board restarted.")]

    def next_board(self) -> None:
        """Starts the next board of the seed's sequence."""
        self.number += 1
        self.history = [Moment(self._drawn(), "A new board.")]

    def tick(self) -> None:
        """Does what happens by itself: nothing."""

    def pause(self) -> None:
        """Lets what happens by itself wait or go on."""

    def hint(self) -> None:
        """Shows the next move of a shortest solution."""
        actions = boxworld.solve(self.now.state)
        if self.is_over:
            self._say("The game is over.")
        elif actions is None:
            self._say("The Gem can no longer be reached. Press u to undo.")
        else:
            self._say(f"Hint: {ACTIONS[actions[0]]}. The Gem is {len(actions)} steps away.")

    def _say(self, message: str) -> None:
        self.history[-1] = dataclasses.replace(self.now, message=message)

    def tiles(self) -> list[list[Tile]]:
        """Returns the rows of tiles to draw; the last column is the inventory."""
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
        """Returns the lines of the text panel."""
        now = self.now
        names = key_names(now.state.palette)
        held = " ".join(names[code] for code in now.state.inventory.tolist() if code != EMPTY)
        world = "Bridge BoxWorld" if self.config.gem_locks == 2 else "BoxWorld"
        return [
            f"{world}, board {self.number + 1} of seed {self.seed}",
            f"step {int(now.state.time)}   reward {now.rewards:g}",
            f"holding: {held or 'nothing'}",
            "",
            *(textwrap.wrap(now.message, PANEL_WIDTH) + [""] * 3)[:3],
            "",
            *self.help,
        ]


class Watched(Game):
    """A game that an agent plays: a move at every tick, actions sampled as in training.

    Attributes:
        is_paused: whether the agent waits. It does after a move, an undo or a restart by the user.
    """

    help: ClassVar[tuple[str, ...]] = (
        "p  pause, go on", "n  new board", "arrows, u, r  move, undo, restart", "h  hint", "q  quit"
    )  # fmt: skip
    milliseconds: ClassVar[int | None] = 250

    def __init__(self, trained: load.Trained, config: boxworld.BoxWorldConfig, seed: int = 0):
        """Draws the first board.

        Args:
            trained: the agent.
            config: the boards, of the size that the agent was trained on.
            seed: seed of the boards and of the agent's actions.

        Raises:
            ValueError: no puzzle satisfies the config.
        """
        super().__init__(config, seed)
        self.trained, self.is_paused, self._waited = trained, False, 0

        def decide(params, state, key):
            output = trained.policy(params, boxworld.observe(state, config)[None])
            logits = output.logits[0]
            return jax.random.categorical(key, logits), jax.nn.softmax(logits), output.value[0]

        self._decide = jax.jit(decide, compiler_options=_QUICKLY)

    def _decision(self):
        key = jax.random.fold_in(jax.random.key(self.seed + 1), self.number)
        key = jax.random.fold_in(key, len(self.history))
        return jax.device_get(self._decide(self.trained.params, self.now.state, key))

    def tick(self) -> None:
        """Makes the agent's next move; after the end of an episode, waits and takes a new board."""
        if self.is_paused:
            return
        if not self.is_over:
            self._waited = 0
            super().act(int(self._decision()[0]))
        elif self._waited < HOLD:
            self._waited += 1
        else:
            self.next_board()

    def pause(self) -> None:
        """Lets the agent wait, or go on."""
        self.is_paused = not self.is_paused

    def act(self, action: int) -> None:
        """Makes the user's move; the agent waits."""
        self.is_paused = True
        super().act(action)

    def undo(self) -> None:
        """Returns to the state before the last move; the agent waits."""
        self.is_paused = True
        super().undo()

    def again(self) -> None:
        """Restarts the current board; the agent waits."""
        self.is_paused = True
        super().again()

    def panel(self) -> list[str]:
        """Returns the lines of the text panel, with the agent's probabilities and value."""
        lines = super().panel()
        lines[0] = f"{self.trained.name}, board {self.number + 1}"
        if self.is_paused:
            lines[0] += ", paused"
        if not self.is_over:
            _, probabilities, value = self._decision()
            lines[3] = " ".join(
                f"{name} {probability:.0%}" for name, probability in zip(ACTIONS, probabilities, strict=True)
            )
            lines[7] = f"expects a return of {value:.1f}"
        return lines


def describe(before: boxworld.State, after: boxworld.State, action: int, reward: float) -> str:
    """Describes the effect of a move in words; returns "" for a plain step."""
    names = key_names(before.palette)
    grid = np.pad(before.grid, 2, constant_values=EMPTY)  # for steps off the board, and their neighbours
    (x, y), (way_x, way_y) = before.player.tolist(), _WAYS[action]
    x, y = x + way_x, y + way_y
    here, left, right = (int(grid[y + 2, x + 2 + i]) for i in (0, -1, 1))
    if reward > 0 and after.terminated:
        return f"The Gem! Solved in {int(after.time)} steps."
    if after.terminated:
        return f"The box with key {names[left]} is a trap: you lose. Press u to undo."
    if after.truncated:
        return f"The limit of {int(after.time)} steps is reached."
    if reward > 0 and left == EMPTY:
        return f"You took key {names[here]}."
    if reward > 0:
        return f"Key {names[here]} opened the box. You now hold {names[left]}."
    if not (0 <= x < before.grid.shape[1] and 0 <= y < before.grid.shape[0]):
        return "That is the edge of the board."
    if here == EMPTY:
        return ""
    if right != EMPTY:
        return "Boxes are opened from their lock, the right tile."
    if left == GEM:
        locks = [int(tile) for tile in before.grid[before.grid[:, x - 1] == GEM, x]]
        return f"The Gem's lock needs {' and '.join(names[lock] for lock in locks)}."
    return f"This lock needs key {names[here]}."


def key_names(palette: Any) -> dict[int, str]:
    """Returns a letter for every colour, the same for a hue on every board; "*" for the Gem.

    The numbers of the colours are not shown because they would reveal the solution.
    """
    distances = np.abs(np.asarray(palette, int)[1:, None] - boxworld.HUES.astype(int)[None]).sum(axis=-1)
    letters = [chr(ord("A") + int(hue)) for hue in np.argmin(distances, axis=1)]
    return {GEM: "*", **dict(enumerate(letters, 1))}
