"""The generator: boards have their stated type and the authors' statistics."""

import itertools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from benchmarks.peers import plain_boxworld
from simplicial import boxworld
from simplicial.boxworld import generation

pytestmark = pytest.mark.usefixtures("compiled_quickly")

CONFIGS = {"bridge": boxworld.BRIDGE, "standard": boxworld.STANDARD}
BOARDS = 100_000
RESET = jax.jit(boxworld.reset_batch, static_argnums=1)
# About forty tests of true hypotheses: a p-value below 1e-4 occurs for one seed in 250; seeds are fixed.
IMPROBABLE = 1e-4


@pytest.fixture(scope="module")
def drawn():
    """Draws 100,000 boards of each kind, as NumPy arrays."""
    return {
        name: jax.device_get(RESET(jax.random.key(5), BOARDS, config)) for name, config in CONFIGS.items()
    }


def p_of(counts, probabilities=None):
    """Returns the chi-square test's p-value; uniform expectation by default."""
    counts = np.asarray(counts)
    assert counts.size > 1
    expected = None if probabilities is None else np.asarray(probabilities) * counts.sum()
    return stats.chisquare(counts, expected).pvalue


def counts_of(values, options):
    """Counts each option; raises if anything else occurs."""

    def coded(rows):  # one number per row: sorting rows is far slower
        rows = np.asarray(rows, np.int64)
        rows = rows.reshape(len(rows), -1)
        return rows @ 64 ** np.arange(rows.shape[1])

    known = coded(options)
    found, counts = np.unique(coded(values), return_counts=True)
    assert len(set(known.tolist())) == len(known)
    assert np.isin(found, known).all()
    table = dict(zip(found.tolist(), counts.tolist(), strict=True))
    return [table.get(option, 0) for option in known.tolist()]


def some(states, which):
    """Selects some episodes of a batch, or one."""
    return jax.tree.map(lambda leaf: leaf[which], states)


def test_the_test_would_notice():
    """A type drawn 5 % too rarely and an unused slot are both far below the bound."""
    rng = np.random.default_rng(0)
    biased = rng.choice(4, BOARDS, p=[0.2375, 0.2542, 0.2541, 0.2542])
    assert p_of(counts_of(biased, range(4))) < 1e-9
    assert p_of(np.asarray([9, 0, *[9] * 10]) * 1000) < 1e-9


def test_bridge_types(drawn):
    """L uniform; half without a bridge; lock and key uniform: 14 types with a bridge, 3 without."""
    types = boxworld.puzzles(boxworld.BRIDGE)
    assert len(types) == 17
    assert sum(lock > 0 for _, lock, _ in types) == 14
    probabilities = [1 / 3 * 0.5 * (1 if lock == 0 else 1 / length**2) for length, lock, _ in types]
    states = drawn["bridge"]
    assert p_of(counts_of(states.puzzle[:, :3], types), probabilities) > IMPROBABLE
    assert not states.puzzle[:, 3].any()
    assert ((states.traps[:, 0, 0] >= 0) == (states.puzzle[:, 1] > 0)).all()


def test_puzzle_numbers_are_places_in_the_list(drawn):
    """The number is -1 outside the list."""
    number = jax.jit(jax.vmap(lambda state: boxworld.puzzle_number(state, boxworld.BRIDGE)))
    few = some(drawn["bridge"], slice(2000))
    types = np.asarray(boxworld.puzzles(boxworld.BRIDGE))
    np.testing.assert_array_equal(types[number(few)], few.puzzle[:, :3])
    shorter = boxworld.BRIDGE.replace(max_length=2)
    unlisted = jax.jit(jax.vmap(lambda state: boxworld.puzzle_number(state, shorter)))(few)
    np.testing.assert_array_equal(np.asarray(unlisted) == -1, few.puzzle[:, 0] == 3)


def test_standard_types(drawn):
    """Length and number of distractors are uniform and independent: 25 pairs."""
    states = drawn["standard"]
    pairs = list(itertools.product(range(1, 6), range(5)))
    assert p_of(counts_of(states.puzzle[:, [0, 3]], pairs)) > IMPROBABLE
    assert not states.puzzle[:, 1:3].any()
    np.testing.assert_array_equal((states.traps[..., 0] >= 0).sum(1), states.puzzle[:, 3])


def test_slots_of_bridge_boards(drawn):
    """The Gem is uniform over four slots with no box below it; other keys are uniform over the rest."""
    states = drawn["bridge"]
    places = [(x, y) for x in (1, 4) for y in (1, 3)]
    assert p_of(counts_of(states.gem, places)) > IMPROBABLE
    slots = {(x, y) for x in (1, 4, 7) for y in (1, 3, 5)}
    full = (states.puzzle[:, 0] == 3) & (states.puzzle[:, 1] > 0)
    assert ((states.grid[full][:, 1::2, 1::3] >= 0).sum((1, 2)) == 8).all()
    for gem in places:
        here = some(states, (states.gem == gem).all(1))
        rest = sorted(slots - {gem, (gem[0], gem[1] + 2)})
        for key in (1, 2):  # anywhere; a bridge holds a key of the second path once more
            other = some(here, here.puzzle[:, 1] == 0)
            lies = (other.grid == key) & ~np.pad(other.grid >= 0, ((0, 0), (0, 0), (1, 0)))[:, :, :-1]
            cells = [tuple(cell[::-1]) for cell in np.argwhere(lies)[:, 1:].tolist()]
            assert p_of(counts_of(cells, rest)) > IMPROBABLE
        bridges = here.traps[here.traps[:, 0, 0] >= 0, 0]
        assert p_of(counts_of(bridges, [(x + 1, y) for x, y in rest])) > IMPROBABLE


def test_numbers_are_uniform_however_many():
    """Of more than 256, the product with 24 bits of a word does not fit into a word."""
    words = np.random.default_rng(0).integers(2**32, size=BOARDS, dtype=np.uint32)
    for count in (3, 256, 551, 5000):
        found = np.asarray(generation._uniform(jnp.asarray(words), 0, count - 1))
        np.testing.assert_array_equal(found, (words.astype(np.uint64) >> 8) * count >> 24)
        assert p_of(np.bincount(found, minlength=count)) > IMPROBABLE
    big = boxworld.BRIDGE.replace(rows=61, cols=61)
    gems = np.asarray(RESET(jax.random.key(0), 300, big).gem)
    assert gems[:, 1].max() > 50


def test_slots_of_standard_boards(drawn):
    """The Gem and the loose key are uniform over ordered pairs of the twelve slots; so are traps."""
    states = drawn["standard"]
    slots = [(x, y) for x in (1, 4, 7) for y in (1, 3, 5, 7)]
    five = some(states, states.puzzle[:, 0] == 5)
    loose = (five.grid == 5) & ~np.pad(five.grid >= 0, ((0, 0), (0, 0), (1, 0)))[:, :, :-1]
    loose &= ~np.pad(five.grid >= 0, ((0, 0), (0, 0), (0, 1)))[:, :, 1:]
    rows, cols = np.nonzero(loose)[1:]
    assert len(rows) == len(five.grid)
    pairs = [(*a, *b) for a, b in itertools.permutations(slots, 2)]
    assert p_of(counts_of(np.column_stack([five.gem, cols, rows]), pairs)) > IMPROBABLE
    used = states.traps[states.traps[..., 0] >= 0]
    assert p_of(counts_of(used, [(x + 1, y) for x, y in slots])) > IMPROBABLE


def test_locks_of_distractors(drawn):
    """Uniform over the solution's keys for every length; each box holds a different key."""
    states = drawn["standard"]
    board, trap = np.nonzero(states.traps[..., 0] >= 0)
    x, y = states.traps[board, trap].T
    length = states.puzzle[board, 0]
    np.testing.assert_array_equal(states.grid[board, y, x - 1], length + 1 + trap)
    for longest in range(2, 6):
        locks = states.grid[board, y, x][length == longest]
        assert p_of(counts_of(locks, range(1, longest + 1))) > IMPROBABLE
    assert (states.grid[board, y, x][length == 1] == 1).all()


@pytest.mark.parametrize("name", CONFIGS)
def test_colours(drawn, name):
    """A permutation of the twenty; every colour in every place, and pairs of places independent."""
    palette = drawn[name].palette
    assert (palette[:, 0] == 255).all()
    code = palette[:, 1:].astype(np.int64) @ [65536, 256, 1]
    names = np.sort(np.asarray(plain_boxworld.COLOURS) @ [65536, 256, 1])
    assert len(set(names.tolist())) == 20
    order = np.searchsorted(names, code)
    np.testing.assert_array_equal(np.sort(code, axis=1), np.broadcast_to(names, code.shape))
    worst = min(p_of(counts_of(order[:, place], range(20))) for place in range(20))
    assert worst > IMPROBABLE / 20
    for one, other in ((0, 1), (1, 2), (0, 19), (7, 12)):
        pairs = list(itertools.permutations(range(20), 2))
        assert p_of(counts_of(order[:, [one, other]], pairs)) > IMPROBABLE


@pytest.mark.parametrize(
    ("config", "name"),
    [
        (
            boxworld.STANDARD.replace(max_length=3, max_distractors=2, branch_length=3, traps=6),
            "long branches",
        ),
        (
            boxworld.BRIDGE.replace(
                rows=11, cols=12, max_length=4, max_distractors=2, branch_length=2, traps=5
            ),
            "all at once",
        ),
        (boxworld.BRIDGE.replace(rows=5, cols=6, max_length=1, bridge_probability=0.0), "smallest"),
        (boxworld.STANDARD.replace(max_distractors=0, traps=0), "no traps"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_every_board_is_the_puzzle_that_it_says(config, name):
    """`from_board` of its tiles gives the same state; it is solvable; its traps are boxes."""
    states = RESET(jax.random.key(11), 300, config)
    by_hand = jax.jit(jax.vmap(lambda s: boxworld.from_board(s.grid, s.palette, s.traps, config)))(states)
    chex.assert_trees_all_equal(states, by_hand)
    states = jax.device_get(states)
    assert states.puzzle[:, 0].max() == config.max_length
    most = int(config.max_distractors) * int(config.branch_length)
    assert set(np.unique(states.puzzle[:, 3])) == set(range(0, most + 1, int(config.branch_length)))
    for i in range(50):
        state = some(states, i)
        if i < 10:  # values are known, so invalid boards would raise
            board = state.grid, state.palette, state.traps
            jax.eval_shape(lambda board=board: boxworld.from_board(*board, config))
        assert boxworld.shortest_solution(state) is not None
    tiles = (states.grid >= 0).sum((1, 2))
    boxes = 1 + config.gem_locks * states.puzzle[:, 0] + (states.puzzle[:, 1] > 0) + states.puzzle[:, 3]
    np.testing.assert_array_equal(tiles, 2 * boxes - config.gem_locks + 2 * (config.gem_locks - 1))


@pytest.mark.parametrize("word", [0, 1, 2**32 - 1])
def test_equal_words_still_give_a_permutation(word):
    """Ties, too rare to be met, are broken by place."""
    ranks = generation._ranks(jnp.full(20, word, jnp.uint32))
    assert sorted(np.asarray(ranks).tolist()) == list(range(20))


def test_branches_are_chains():
    """Each box in a branch is locked with the key in the previous one."""
    config = boxworld.STANDARD.replace(
        max_length=2, min_distractors=2, max_distractors=2, branch_length=3, traps=6
    )
    states = jax.device_get(RESET(jax.random.key(1), 300, config))
    for grid, traps, puzzle in zip(states.grid, states.traps, states.puzzle, strict=True):
        locks = [int(grid[y, x]) for x, y in traps]
        held = [int(grid[y, x - 1]) for x, y in traps]
        assert held == [puzzle[0] + 1 + i for i in range(6)]
        assert (locks[1:3], locks[4:6]) == (held[0:2], held[3:5])
        assert {locks[0], locks[3]} <= set(range(1, puzzle[0] + 1))


def test_a_board_is_a_function_of_its_key(drawn):
    """The same alone and in a batch, and where JAX's integers have 64 bits."""
    key = jax.random.split(jax.random.key(5), BOARDS)[1]
    with jax.enable_x64(True):
        alone = jax.device_get(jax.jit(boxworld.reset, static_argnums=1)(key, boxworld.BRIDGE))
    chex.assert_trees_all_equal(some(drawn["bridge"], 1), alone)


def test_a_curriculum_is_a_batch_of_settings():
    """Leaves vary under vmap without compiling again: lengths 1, 2, 3 in parallel."""
    lengths = np.repeat(np.asarray([1, 2, 3], np.int32), 50)
    configs = boxworld.BRIDGE.replace(min_length=lengths, max_length=lengths)
    axes = jax.tree.map(lambda leaf: 0 if jnp.ndim(leaf) else None, configs)
    states = jax.jit(jax.vmap(boxworld.reset, in_axes=(0, axes)))(
        jax.random.split(jax.random.key(0), 150), configs
    )
    np.testing.assert_array_equal(states.puzzle[:, 0], lengths)


def test_an_unknown_bridge_probability_has_no_list_of_puzzles():
    """Under jit the value is unknown."""
    with pytest.raises(ValueError, match="expected plain numbers"):
        jax.jit(lambda p: len(boxworld.puzzles(boxworld.BRIDGE.replace(bridge_probability=p))))(0.5)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "expected"), [("bridge", 0.738), ("standard", 0.420)])
def test_how_often_chance_solves_a_board(name, expected):
    """20,000 episodes played to the end without a horizon, compared with 263,000 of a plain model."""
    config, episodes = CONFIGS[name], 20_000

    @jax.jit
    def play(key):
        for_boards, for_actions = jax.random.split(key)
        states = boxworld.reset_batch(for_boards, episodes, config)

        def act(carry):
            states, key, solved = carry
            key, now = jax.random.split(key)
            actions = jax.random.bits(now, (episodes,), jnp.uint8) % 4
            states, outcome = jax.vmap(lambda s, a: boxworld.step(s, a, config))(states, actions)
            return states, key, solved | (outcome.reward == 10)

        start = states, for_actions, jnp.zeros(episodes, bool)
        return jax.lax.while_loop(lambda carry: ~carry[0].terminated.all(), act, start)

    states, _, solved = play(jax.random.key(42))
    assert abs(float(solved.mean()) - expected) < 0.01
    if name == "bridge":
        assert abs(float(states.time.mean()) - 577) < 15
