"""Recorded episodes: what was recorded is what happens again; what is shown of it."""

import dataclasses

import jax
import numpy as np
import pytest

from experiments.boxworld import episodes
from simplicial import analysis, apply_with_attention, boxworld
from tests.experiments.boxworld.player import small_episode, small_player
from tests.simplicial.small import quickly

pytestmark = pytest.mark.usefixtures("compiled_quickly")

PUZZLE = (2, 1, 3)


@pytest.fixture(scope="module")
def episode():
    """Steps that give rewards."""
    recorded, _ = episodes.first_solved(small_player(), jax.random.key(0), PUZZLE, attempts=1, cap=250)
    assert np.count_nonzero(recorded.rewards) >= 2
    return recorded


def test_recorded_is_what_happens_again(episode):
    """The same actions give the same states, pictures and rewards; the agent the same thoughts."""
    player = small_player()
    step = jax.jit(boxworld.step)
    state = episode.state(0)
    for time, action in enumerate(episode.actions):
        state, outcome = jax.device_get(step(state, action, player.config))
        assert float(outcome.reward) == episode.rewards[time]
        jax.tree.map(np.testing.assert_array_equal, state, episode.state(time + 1))
    observe = jax.jit(jax.vmap(lambda state: boxworld.observe(state, player.config)))
    np.testing.assert_array_equal(observe(episode.states), episode.pictures)
    look = quickly(lambda *args: apply_with_attention(player.agent, *args))
    output = look({"params": player.params}, episode.pictures[:-1])
    np.testing.assert_allclose(episode.probabilities, jax.nn.softmax(output.logits), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(episode.values, output.value, rtol=1e-3, atol=1e-5)
    for seen, wanted in zip(episode.attention, output.attention, strict=True):
        for name in ("standard", "virtual", "pairs"):
            np.testing.assert_allclose(getattr(seen, name), getattr(wanted, name), rtol=1e-3, atol=1e-5)


def test_greedy_takes_the_likeliest(episode):
    """And otherwise actions are drawn."""
    player = small_player()
    greedy = episodes.record(player, episode.state(0), jax.random.key(1), cap=10, greedy=True)
    np.testing.assert_array_equal(greedy.actions, np.argmax(greedy.probabilities, axis=-1))
    assert greedy.steps == 10
    assert greedy.ending == "given up"
    assert (episode.actions != np.argmax(episode.probabilities, axis=-1)).any()
    shares = np.bincount(episode.actions, minlength=4) / episode.steps
    wanted = episode.probabilities.mean(axis=0)
    assert (np.abs(shares - wanted) < 4 * np.sqrt(wanted * (1 - wanted) / episode.steps)).all()


def test_endings(episode):
    over = dataclasses.replace(
        episode,
        states=dataclasses.replace(episode.states, terminated=np.arange(episode.steps + 1) == episode.steps),
    )
    for rewards, ending in (([0.0, 10.0], "solved"), ([1.0, -1.0], "trap opened")):
        assert dataclasses.replace(over, rewards=np.asarray(rewards)).ending == ending


@pytest.mark.parametrize(("ended", "ending"), [("terminated", "trap opened"), ("truncated", "given up")])
def test_a_recording_stops_where_the_episode_ends(monkeypatch, episode, ended, ending):
    real = episodes._step

    def step(*args):
        following, outcome, *rest = real(*args)
        following = dataclasses.replace(following, **{ended: following.time >= 3})
        return following, dataclasses.replace(outcome, reward=np.float32(-1)), *rest

    monkeypatch.setattr(episodes, "_step", step)
    found = episodes.record(small_player(), episode.state(0), jax.random.key(1), cap=9)
    assert (found.steps, found.ending) == (3, ending)
    assert episodes.record(small_player(), episode.state(0), jax.random.key(1), cap=1).steps == 1


def test_the_first_solved_is_found(monkeypatch):
    """Of a player that solves the third board."""
    endings = iter(["given up", "trap opened", "solved", "solved"])
    real = episodes.record
    settings = []

    def record(*args, greedy, **kwargs):
        settings.append({"greedy": greedy, **kwargs})
        recorded = real(*args, **kwargs)
        ending = next(endings)
        object.__setattr__(recorded, "faked", ending)
        return recorded

    monkeypatch.setattr(episodes, "record", record)
    monkeypatch.setattr(episodes.Episode, "ending", property(lambda self: self.faked))
    found, tried = episodes.first_solved(
        small_player(), jax.random.key(0), PUZZLE, cap=2, attempts=4, greedy=True
    )
    assert (found.ending, tried) == ("solved", 3)
    assert settings == [{"greedy": True, "cap": 2}] * 3


def test_moments_are_events(episode):
    times = episodes.moments(episode, 4)
    assert times == sorted(set(times))
    assert len(times) == 4
    assert times[0] == 0
    assert times[-1] == episode.steps - 1
    events = np.flatnonzero(episode.rewards)
    assert set(times) & set(events.tolist())

    def shown(rewards, count):
        return episodes.moments(dataclasses.replace(episode, rewards=rewards, actions=rewards), count)

    assert shown(np.zeros(9), 4) == [0, 2, 4, 8]
    assert shown(np.zeros(2), 4) == [0, 1]
    assert shown(np.zeros(1), 4) == [0]
    assert shown(np.eye(12)[3] + np.eye(12)[5], 4) == [0, 3, 5, 11]
    assert shown(np.eye(12)[2], 4) == [0, 2, 6, 11]  # in the widest gap, the last or the first
    assert shown(np.eye(12)[7], 4) == [0, 3, 7, 11]


def test_virtual_views(episode):
    views = episodes.virtual_views(episode, sharpening=1.0)
    assert list(views) == [f"virtual {m}, head {h}" for m in (1, 2) for h in (1, 2)]
    weights = episode.attention[0].virtual
    for number, maps in enumerate(views.values()):
        entity, head = divmod(number, 2)
        np.testing.assert_array_equal(maps, weights[:, head, entity, :40].reshape(episode.steps, 5, 8))
    title = "virtual 1, head 1"
    assert (episodes.virtual_views(episode)[title].max((1, 2)) > views[title].max((1, 2))).all()


def test_pair_statistics(episode):
    """Means over the steps of each board, of landmarks where they are at that step."""
    found = episodes.pair_statistics([episode] * 3)
    deviation = np.asarray(analysis.pair_deviation(episode.attention[1]))[:, 0]
    wanted, others = [], []
    for time in range(episode.steps):
        places = analysis.landmarks(episode.state(time), episode.config)
        wanted.append(deviation[time, places["player"]])
        others.append([deviation[time, i] for i in range(40) if i not in places.values()])
    assert found["player"] == pytest.approx([np.mean(wanted)] * 3)
    assert found["other entities"] == pytest.approx([np.mean([np.mean(row) for row in others])] * 3)
    held = [episode.state(time).inventory[0] >= 0 for time in range(episode.steps)]
    inventory = deviation[np.flatnonzero(held), 7]
    assert found["inventory"] == pytest.approx([inventory.mean()] * 3)


@pytest.mark.parametrize("greedy", [False, True])
def test_several_are_played_as_one_is(greedy):
    for one in episodes.play(small_player(), jax.random.key(2), boards=2, cap=8, greedy=greedy):
        assert (one.actions == np.argmax(one.probabilities, axis=-1)).all() == greedy


def test_what_is_played_are_boards_of_the_environment():
    """Different ones; bridges on some only."""
    boards = episodes.play(small_player(), jax.random.key(2), boards=6, cap=2)
    found = episodes.pair_statistics(boards)
    assert len(found["player"]) == len(set(found["player"])) == 6
    assert 0 < len(found["bridge lock"]) < 6
    without, before, holding, after = episodes.pair_phases(boards).values()
    assert (len(without), len(before)) == (6 - len(found["bridge lock"]), len(found["bridge lock"]))
    assert len(holding) + len(after) == 0


def test_pairs_before_while_and_after_a_bridge_can_be_opened(episode):
    """Means over entities and the steps of each phase; by the key in the inventory that opens the bridge."""
    x, y = episode.states.traps[0, 0]
    inventory = np.full_like(episode.states.inventory, -1)
    inventory[3:5, 1] = inventory[7, 0] = episode.states.grid[0, y, x]
    inventory[5:7, 0] = episode.states.grid[0, y, x] + 1
    held = dataclasses.replace(episode, states=episode.states.replace(inventory=inventory))
    weights = np.asarray(analysis.pair_maps(episode.attention[0]))[:, 0]
    phases = episodes.pair_phases([held, held], block=0)
    after = [5, 6, *range(8, episode.steps)]
    for phase, steps in zip(episodes.PHASES[1:], ([0, 1, 2], [3, 4, 7], after), strict=True):
        np.testing.assert_allclose(phases[phase], [weights[steps].mean((0, 2))] * 2, rtol=1e-5)
    none = held.states.replace(traps=np.full_like(held.states.traps, -1))
    (of_none,), *others = episodes.pair_phases([dataclasses.replace(held, states=none)], block=0).values()
    np.testing.assert_allclose(of_none, weights.mean((0, 2)), rtol=1e-5)
    assert not any(others)


def test_landmark_views_follow_the_player(episode):
    views = episodes.landmark_views(episode, ("player", "inventory"), blocks=(0, 1))
    assert list(views)[:4] == [
        "player, block 1, head 1", "player, block 1, head 2",
        "player, block 2, head 1", "player, block 2, head 2",
    ]  # fmt: skip
    assert len(views) == 8
    for time in (0, episode.steps // 2, episode.steps - 1):
        places = analysis.landmarks(episode.state(time), episode.config)
        wanted = episode.attention[1].standard[time, 1, places["player"]].reshape(5, 8)
        np.testing.assert_array_equal(views["player, block 2, head 2"][time], wanted)
    alone = episodes.landmark_views(episode, ("player",))  # of the first block
    np.testing.assert_array_equal(alone["player, head 2"], views["player, block 1, head 2"])
    held = views["inventory, block 1, head 1"]
    assert held[0].sum() == 0, "nothing is held at the start"
    assert held[-1].sum() == pytest.approx(1, rel=1e-5)


def test_a_relational_agent_has_no_virtual_views():
    recorded = small_episode("relational", "standard", 2)
    assert episodes.virtual_views(recorded) == {}
    assert episodes.landmark_views(recorded, ("Gem lock",))["Gem lock, head 1"].shape == (2, 7, 8)


def test_spotlight(episode):
    """A tile is as bright as its weight; the edge, which has no entities, is as dark as can be."""
    picture = np.full((7, 10, 3), 200, np.uint8)
    weights = np.zeros((5, 8))
    weights[1, 2], weights[4, 7] = 0.4, 0.2
    lit = episodes.spotlight(picture, weights)
    assert lit.dtype == np.uint8
    assert (lit[2, 3] == 200).all()
    assert (lit[5, 8] == round(200 * (episodes.DIMMEST + (1 - episodes.DIMMEST) / 2))).all()
    lit[2, 3] = lit[5, 8] = 30
    assert (lit == 200 * episodes.DIMMEST).all()
    assert (episodes.spotlight(picture, np.zeros((5, 8))) == 30).all()
    with pytest.raises(ValueError, match=r"weights: got shape \(8, 5\), expected \(5, 8\)"):
        episodes.spotlight(picture, np.zeros((8, 5)))


def test_tile_names_are_the_numbers_of_the_paper(episode):
    state = episode.state(0)
    names = episodes.tile_names(state)
    assert names[0, 0] == "@"
    assert sorted(name for name in names.values() if name.isdigit()) == sorted(
        str(tile) for tile in state.grid.ravel() if tile > 0
    )
    assert list(names.values()).count("G") == 2
    x, y = state.traps[0]
    assert (names[x - 1, y], names[x, y]) == ("3", "1")
    last = episode.state(int(np.flatnonzero(episode.rewards)[0]) + 1)
    assert episodes.tile_names(last)[9, 0] == str(last.inventory[0])


@pytest.mark.parametrize(
    ("colour", "is_bright"),
    [((255, 255, 255), True), ((0, 255, 0), True), ((0, 0, 0), False), ((255, 0, 255), False)],
)
def test_text_is_black_on_what_is_bright(colour, is_bright):
    assert episodes.is_bright(colour) is is_bright
    assert episodes.is_bright(np.asarray(colour, np.uint8)) is is_bright


def test_refuses(episode):
    player = small_player()
    with pytest.raises(ValueError, match="cap: got 0, expected at least 1"):
        episodes.record(player, episode.state(0), jax.random.key(0), cap=0)
    for board in (episode.states, dataclasses.replace(episode.state(0), terminated=np.bool_(True))):
        with pytest.raises(ValueError, match=r"board: got .*, expected one episode under way"):
            episodes.record(player, board, jax.random.key(0))
