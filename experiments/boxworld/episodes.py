"""Records BoxWorld episodes with the agent's attention, and computes the maps that figures show.

Axes: T steps, R rows and C columns of the board, N = (R - 2)(C - 1) entities.
"""

import dataclasses
import functools
import itertools
from collections.abc import Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int, PRNGKeyArray, UInt8

from experiments.boxworld.load import Trained
from simplicial import analysis, apply_with_attention, boxworld
from simplicial.agent import BlockAttention
from simplicial.boxworld.rules import EMPTY, GEM

DIMMEST = 0.15
"""Brightness of a tile with zero attention, so that the board remains visible."""
CODES = {
    "player": "P",
    "Gem lock": "G",
    "Gem lock, top": "G1",
    "Gem lock, bottom": "G2",
    "bridge lock": "L",
    "bridge key": "K",
    "inventory": "I",
}
"""Abbreviations of `analysis.landmarks` in figures."""


@dataclasses.dataclass(frozen=True)
class Episode:
    """A recorded episode, stored on the host.

    Attributes:
        config: the environment's config.
        states: the states at the start and after every step, leaves [T+1, ...].
        pictures: the observation of each state.
        probabilities: probabilities of the four actions at every step.
        values: the agent's value estimate at every step.
        attention: one entry per block, leaves [T, ...].
        actions: the action taken at every step.
        rewards: the reward received at every step.
    """

    config: boxworld.BoxWorldConfig
    states: boxworld.State
    pictures: UInt8[np.ndarray, "T+1 R C+1 3"]
    probabilities: Float[np.ndarray, "T 4"]
    values: Float[np.ndarray, "T"]
    attention: tuple[BlockAttention, ...]
    actions: Int[np.ndarray, "T"]
    rewards: Float[np.ndarray, "T"]

    @property
    def steps(self) -> int:
        """Number of steps, T."""
        return len(self.actions)

    @property
    def ending(self) -> str:
        """How the episode ended: "solved", "trap opened" or "given up"."""
        if not self.states.terminated[-1]:
            return "given up"
        return "solved" if self.rewards[-1] > 0 else "trap opened"

    def state(self, time: int) -> boxworld.State:
        """Returns the state after `time` steps."""
        return jax.tree.map(lambda leaf: leaf[time], self.states)

    def landmarks(self, time: int) -> dict[str, int]:
        """Returns the index of each landmark's entity after `time` steps; see `analysis.landmarks`."""
        return analysis.landmarks(self.state(time), self.config)

    def codes(self, time: int) -> dict[int, list[str]]:
        """Returns the landmark abbreviations of each landmark entity after `time` steps."""
        found: dict[int, list[str]] = {}
        for name, entity in self.landmarks(time).items():
            found.setdefault(entity, []).append(CODES[name])
        return found


@functools.partial(jax.jit, static_argnames=("agent", "greedy"))
def _step(agent, params, state, key, config, greedy):
    seen = boxworld.observe(state, config)
    output = apply_with_attention(agent, {"params": params}, seen)
    action = jnp.argmax(output.logits) if greedy else jax.random.categorical(key, output.logits)
    following, outcome = boxworld.step(state, action, config)
    return following, outcome, output, action, boxworld.observe(following, config)


_reset = jax.jit(boxworld.reset)


def record(
    player: Trained,
    board: boxworld.State,
    key: PRNGKeyArray,
    *,
    cap: int = analysis.CAP,
    greedy: bool = False,
) -> Episode:
    """Plays one board to its end, or gives up after `cap` steps.

    Args:
        player: the agent.
        board: the initial state of one episode.
        key: PRNG key for sampling actions.
        cap: maximum number of steps.
        greedy: take the most likely action instead of sampling.

    Raises:
        ValueError: `cap` is not positive, `board` is batched, or its episode has ended.
    """
    if cap < 1:
        raise ValueError(f"cap: got {cap}, expected at least 1")
    if jnp.ndim(board.time) or board.terminated or board.truncated:
        raise ValueError("board: got a batch or an episode that has ended, expected one episode under way")
    state, states = board, [jax.device_get(board)]
    pictures = [np.asarray(boxworld.observe(board, player.config))]
    rows = []
    for time in range(cap):
        state, outcome, output, action, picture = _step(
            player.agent, player.params, state, jax.random.fold_in(key, time), player.config, greedy
        )
        states.append(jax.device_get(state))
        pictures.append(np.asarray(picture))
        rows.append(jax.device_get((output, action, outcome.reward)))
        if states[-1].terminated or states[-1].truncated:
            break
    outputs, actions, rewards = jax.tree.map(lambda *leaves: np.stack(leaves), *rows)
    exponent = np.exp(outputs.logits - outputs.logits.max(axis=-1, keepdims=True))
    return Episode(
        config=player.config,
        states=jax.tree.map(lambda *leaves: np.stack(leaves), *states),
        pictures=np.stack(pictures),
        probabilities=exponent / exponent.sum(axis=-1, keepdims=True),
        values=outputs.value,
        attention=outputs.attention,
        actions=actions,
        rewards=rewards,
    )


def first_solved(
    player: Trained,
    key: PRNGKeyArray,
    puzzle: tuple[int, int, int],
    *,
    attempts: int = 16,
    cap: int = analysis.CAP,
    greedy: bool = False,
) -> tuple[Episode, int]:
    """Plays up to `attempts` boards of a type until the player solves one.

    Returns:
        The first solved episode (or the last one played), and the number of boards played.

    Raises:
        ValueError: a number is not positive, or the player's environment has no such type.
    """
    for_boards, for_actions = jax.random.split(key)
    boards = jax.device_get(analysis.boards_of(for_boards, [puzzle], attempts, player.config))
    for number in range(attempts):
        board = jax.tree.map(lambda leaf, number=number: leaf[number], boards)
        episode = record(player, board, jax.random.fold_in(for_actions, number), cap=cap, greedy=greedy)
        if episode.ending == "solved" or number == attempts - 1:
            break
    return episode, number + 1


def moments(episode: Episode, count: int = 4) -> list[int]:
    """Chooses up to `count` steps to show: the first, the last, rewarded ones, then evenly spaced others."""
    events = sorted({0, episode.steps - 1, *np.flatnonzero(episode.rewards).tolist()})
    while len(events) < min(count, episode.steps):
        start, end = max(itertools.pairwise(events), key=lambda gap: gap[1] - gap[0])
        events = sorted({*events, (start + end) // 2})
    chosen = np.linspace(0, len(events) - 1, min(count, len(events))).round().astype(int)
    return [events[index] for index in chosen]


def play(
    player: Trained, key: PRNGKeyArray, *, boards: int = 100, cap: int = 60, greedy: bool = False
) -> list[Episode]:
    """Plays boards drawn from the training distribution, each for at most `cap` steps."""
    keys = [jax.random.split(jax.random.fold_in(key, number)) for number in range(boards)]
    return [
        record(player, jax.device_get(_reset(for_board, player.config)), for_actions, cap=cap, greedy=greedy)
        for for_board, for_actions in keys
    ]


def pair_statistics(boards: Sequence[Episode], *, block: int = 1) -> dict[str, list[float]]:
    """Computes `analysis.pair_deviation` at the landmarks and at all other entities.

    Args:
        boards: episodes of an agent with virtual entities.
        block: index of the block, from 0; only its first head is used.

    Returns:
        For each landmark, and for "other entities", one number per board: the mean over its steps. Boards
        without the landmark are omitted.

    Raises:
        ValueError: the agent has no virtual entities.
    """
    found: dict[str, list[float]] = {}
    for episode in boards:
        deviation = np.asarray(analysis.pair_deviation(episode.attention[block]))[:, 0]
        seen: dict[str, list[float]] = {}
        for time in range(episode.steps):
            places = episode.landmarks(time)
            for name, entity in places.items():
                seen.setdefault(name, []).append(float(deviation[time, entity]))
            others = np.delete(deviation[time], list(places.values()))
            seen.setdefault("other entities", []).append(float(others.mean()))
        for name, values in seen.items():
            found.setdefault(name, []).append(float(np.mean(values)))
    return found


PHASES = (
    "no bridge",
    "no key for the bridge yet",
    "holding a key for the bridge",
    "key used for another box",
)
"""Steps: of boards without a bridge; before, while and after the agent can open one, which would end them."""


def pair_phases(boards: Sequence[Episode], *, block: int = 1) -> dict[str, list[list[float]]]:
    """Averages which pairs of virtual entities are attended to, before, while and after a bridge is open to.

    Args:
        boards: episodes of an agent with virtual entities.
        block: index of the block, from 0; only its first head is used.

    Returns:
        For each of `PHASES`, one row per board that has such steps: the weight of each pair, in the order of
        `analysis.pair_labels`, in its mean over entities and those steps.

    Raises:
        ValueError: the agent has no virtual entities.
    """
    found: dict[str, list[list[float]]] = {phase: [] for phase in PHASES}
    for episode in boards:
        phases = np.zeros(episode.steps, int)
        if episode.config.bridge_traps and episode.states.traps[0, 0, 0] >= 0:
            x, y = episode.states.traps[0, 0]
            holds = (episode.states.inventory[:-1] == episode.states.grid[0, y, x]).any(axis=-1)
            phases = np.where(holds, 2, 1 + 2 * (np.cumsum(holds) > 0))
        weights = np.asarray(analysis.pair_maps(episode.attention[block]))[:, 0].mean(axis=-1)
        for number, phase in enumerate(PHASES):
            if (phases == number).any():
                found[phase].append(weights[phases == number].mean(axis=0).tolist())
    return found


Views = Mapping[str, Float[np.ndarray, "T R-2 C-1"]]
"""Attention maps over the grid of entities for every step of an episode, by title."""


def virtual_views(episode: Episode, sharpening: float = analysis.DISPLAY_SHARPENING) -> Views:
    """Returns the attention of each virtual entity and head in block 1; empty for relational agents."""
    attention = episode.attention[0]
    if attention.virtual is None:
        return {}
    maps = np.asarray(analysis.virtual_maps(attention, episode.config, sharpening))
    return {
        f"virtual {entity + 1}, head {head + 1}": maps[:, entity, head]
        for entity, head in np.ndindex(maps.shape[1:3])
    }


def landmark_views(episode: Episode, names: Sequence[str], blocks: Sequence[int] = (0,)) -> Views:
    """Returns the attention of the entities at the given landmarks, in each head of the given blocks.

    The map is 0 at steps where the landmark is not on the board.

    Args:
        episode: the recorded episode.
        names: landmark names, as in `analysis.landmarks`.
        blocks: block indices, from 0.
    """
    found = [episode.landmarks(time) for time in range(episode.steps)]
    views = {}
    for name in names:
        for block in blocks:
            weights = np.asarray(episode.attention[block].standard)
            maps = np.zeros_like(weights[:, :, 0])  # [T, H, N]
            for time, places in enumerate(found):
                if name in places:
                    maps[time] = weights[time, :, places[name]]
            where = f"block {block + 1}, " if len(blocks) > 1 else ""
            for head in range(weights.shape[1]):
                grid = maps[:, head].reshape(-1, *analysis.entity_grid(episode.config))
                views[f"{name}, {where}head {head + 1}"] = grid
    return views


def spotlight(
    picture: UInt8[np.ndarray, "R C+1 3"], weights: Float[np.ndarray, "R-2 C-1"]
) -> UInt8[np.ndarray, "R C+1 3"]:
    """Dims each tile of a picture in proportion to its weight relative to the largest weight.

    The border of the picture has no entities and gets weight 0.

    Raises:
        ValueError: `weights` does not have the shape of the picture's grid of entities.
    """
    wanted = (picture.shape[0] - 2, picture.shape[1] - 2)
    if weights.shape != wanted:
        raise ValueError(
            f"weights: got shape {weights.shape}, expected {wanted} for a picture of shape {picture.shape}"
        )
    share = np.zeros(picture.shape[:2])
    share[1:-1, 1:-1] = weights / max(float(weights.max()), np.finfo(np.float32).tiny)
    light = DIMMEST + (1 - DIMMEST) * share
    return np.round(picture * light[..., None]).astype(np.uint8)


def tile_names(state: boxworld.State) -> dict[tuple[int, int], str]:
    """Returns labels for the tiles (x, y), so that figures can be read without distinguishing colours.

    Keys and locks are labelled with the number of their colour, as in the paper's figures: 1 to L on the
    upper path, L + 1 to 2L on the lower one. "G" is the Gem, "@" the player; column x = C is the inventory.
    """
    tiles = np.concatenate([state.grid, np.asarray(state.inventory)[:, None]], axis=1)
    names = {
        (int(x), int(y)): "G" if tiles[y, x] == GEM else str(tiles[y, x])
        for y, x in np.argwhere(tiles != EMPTY)
    }
    x, y = np.asarray(state.player).tolist()
    return {**names, (x, y): "@"}


def is_bright(colour: np.ndarray | Sequence[int]) -> bool:
    """Returns whether black text is more readable than white on an RGB colour with values 0 to 255."""
    return bool(np.asarray(colour) @ (0.3, 0.59, 0.11) > 120)
