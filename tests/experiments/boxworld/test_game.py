"""What moves in BoxWorld do, in words; and an agent that plays by itself."""

import re

import numpy as np
import pytest

from experiments.boxworld import load
from experiments.boxworld.game import HOLD, PANEL_HEIGHT, PANEL_WIDTH, Game, Watched, key_names
from simplicial import boxworld
from tests.experiments.boxworld.games import BOARD, on, walk

LEFT, UP, RIGHT, DOWN = range(4)


@pytest.fixture(scope="module")
def bridge():
    """A game whose board is set by `on`."""
    return Game(boxworld.BRIDGE)


def test_what_moves_do_is_said(bridge):
    game = on(bridge, BOARD, trap=(7, 2))
    assert walk(game, UP, LEFT) == ["That is the edge of the board."] * 2
    assert walk(game, RIGHT) == ["You took key C."]
    assert game.now.rewards == 1
    assert walk(game, DOWN, RIGHT) == ["", "Boxes are opened from their lock, the right tile."]
    assert walk(game, UP, RIGHT, RIGHT, DOWN) == ["", "", "", "Key C opened the box. You now hold A."]
    assert "holding: A" in game.panel()
    assert walk(game, DOWN, RIGHT, DOWN)[-1] == "The Gem's lock needs A and B."
    assert game.now.rewards == 2
    assert walk(game, UP, UP, RIGHT, RIGHT, RIGHT) == ["", "", "", "", "You took key B."]
    assert "holding: A B" in game.panel()
    assert game.panel()[1] == f"step {len(game.history) - 1}   reward 3"


def test_every_edge_is_an_edge(bridge):
    game = on(bridge, {(3, 3): 0, (4, 3): 1, (3, 4): 0, (4, 4): 2})
    for way, steps in ((RIGHT, 8), (DOWN, 6), (LEFT, 8), (UP, 6)):
        assert walk(game, *[way] * (steps + 1)) == [""] * steps + ["That is the edge of the board."]


def test_the_gem(bridge):
    game = on(bridge, BOARD, trap=(7, 2))
    actions = boxworld.solve(game.now.state)
    assert actions is not None
    said = walk(game, *actions)
    assert said[-1] == f"The Gem! Solved in {len(actions)} steps."
    assert game.is_over
    assert game.now.rewards == 13
    assert [row[-1].text for row in game.tiles()][:2] == ["*", "*"]
    steps = len(game.history)
    assert walk(game, LEFT) == ["The game is over. Press n for a new board or u to undo."]
    game.hint()
    assert game.now.message == "The game is over."
    assert len(game.history) == steps
    game.undo()
    assert not game.is_over
    assert game.now.message == "Undid one step."


def test_a_trap_and_the_way_back(bridge):
    game = on(bridge, {**BOARD, (1, 0): 1}, trap=(7, 2))  # A is loose
    game.hint()
    shortest = boxworld.shortest_solution(game.now.state)
    assert re.fullmatch(rf"Hint: \w+\. The Gem is {shortest} steps away\.", game.now.message)
    walk(game, RIGHT, *[RIGHT] * 7, DOWN, DOWN)
    assert game.now.message == ""
    assert walk(game, LEFT) == ["The box with key B is a trap: you lose. Press u to undo."]
    assert game.is_over
    assert game.now.rewards == 1
    game.undo()
    assert not game.is_over
    assert game.now.rewards == 2


def test_a_board_that_cannot_be_solved_any_more(bridge):
    """A is used up on a box that is no trap but leads nowhere."""
    game = on(bridge, {**BOARD, (1, 0): 1, (3, 1): 1, (2, 1): 5}, trap=(7, 2))
    walk(game, RIGHT, RIGHT, RIGHT, DOWN)
    assert game.now.message == "Key A opened the box. You now hold E."
    game.hint()
    assert game.now.message == "The Gem can no longer be reached. Press u to undo."
    game.again()
    assert len(game.history) == 1
    assert game.now.rewards == 0
    assert game.now.message == "Board restarted."
    game.undo()
    assert game.now.message == "Nothing to undo."


def test_locks_without_their_key(bridge):
    game = on(bridge, BOARD, trap=(7, 2))
    walk(game, DOWN, DOWN, DOWN)
    assert walk(game, *[RIGHT] * 2, RIGHT)[-1] == "Boxes are opened from their lock, the right tile."
    game = on(bridge, {**BOARD, (0, 2): 4, (1, 2): 5}, trap=(7, 2))
    assert walk(game, DOWN, DOWN)[-1] == "Boxes are opened from their lock, the right tile."
    walk(game, RIGHT)
    assert walk(game, DOWN) == ["This lock needs key E."]


def test_boards_are_functions_of_the_seed():
    one, other = Game(boxworld.STANDARD, 3), Game(boxworld.STANDARD, 3)
    for _ in range(2):
        np.testing.assert_array_equal(one.now.state.grid, other.now.state.grid)
        np.testing.assert_array_equal(one.now.state.palette, other.now.state.palette)
        before = one.now.state.grid
        one.next_board()
        other.next_board()
        assert (one.now.state.grid != before).any()
    assert "board 3 of seed 3" in one.panel()[0]


def test_a_horizon_ends_the_game():
    game = Game(boxworld.BRIDGE.replace(horizon=2))
    assert walk(game, UP, UP)[-1] == "The limit of 2 steps is reached."
    assert game.is_over


def test_tiles_have_the_colours_of_the_picture(bridge):
    game = on(bridge, BOARD, trap=(7, 2))
    walk(game, RIGHT, DOWN)
    picture = np.asarray(boxworld.observe(game.now.state, game.config))
    tiles = game.tiles()
    np.testing.assert_array_equal([[tile.colour for tile in row] for row in tiles], picture)
    assert tiles[1][1].text == "@"
    assert [tiles[3][3].text, tiles[3][4].text, tiles[4][4].text] == ["*", "A", "B"]
    assert tiles[0][9].text == "C"
    assert tiles[6][0].text == " "


def test_letters_are_those_of_hues_and_tell_nothing():
    """The same hue is the same letter on every board; the number in the solution is not."""
    order = np.random.default_rng(0).permutation(20)
    names = key_names(np.concatenate([[[255] * 3], boxworld.HUES[order]]))
    assert names == {0: "*", **{i + 1: chr(ord("A") + hue) for i, hue in enumerate(order)}}


def test_the_panel_fits(bridge):
    game = on(bridge, BOARD, trap=(7, 2))
    game.hint()
    lines = game.panel()
    assert len(lines) <= PANEL_HEIGHT
    assert max(map(len, lines)) <= PANEL_WIDTH
    text = " ".join(lines)
    assert "Hint: right. The Gem is" in text
    assert "holding: nothing" in text


@pytest.fixture(scope="module")
def watched():
    """A game played by a released agent, which solves nearly every board; `start` begins anew."""
    trained = load.load("boxworld/quick_simplicial")
    return Watched(trained, trained.config, 2)


def start(game):
    game.number, game.is_paused = -1, False
    game.next_board()
    return game


def test_an_agent_plays_by_itself(watched):
    """It solves boards, shows the end of each for a while, and takes the next; a seed fixes its moves."""
    game, endings = start(watched), []
    for _ in range(60):
        before, was_over = game.number, game.is_over
        game.tick()
        if game.is_over and not was_over:
            endings.append(game.now.message)
            for _ in range(HOLD):
                game.tick()
                assert game.is_over
            game.tick()
            assert game.number == before + 1
            assert len(game.history) == 1
    assert len(endings) >= 3
    assert sum("The Gem!" in ending for ending in endings) >= len(endings) - 1
    start(game)
    while not game.is_over:
        game.tick()
    assert game.now.message == endings[0]


def test_who_plays_along_pauses_the_agent(watched):
    game = start(watched)
    game.tick()
    assert len(game.history) == 2
    for interfere in (lambda: game.act(UP), game.undo, game.again, game.pause):
        game.is_paused = False
        interfere()
        assert game.is_paused
        assert ", paused" in game.panel()[0]
        length = len(game.history)
        game.tick()
        assert len(game.history) == length
    game.pause()
    game.tick()
    assert len(game.history) == length + 1


def test_the_panel_shows_what_the_agent_thinks(watched):
    game = start(watched)
    lines = game.panel()
    assert lines[0] == "simplicial agent, board 1"
    shares = [int(share) for share in re.findall(r"(\d+)%", lines[3])]
    assert re.sub(r"\d+", "", lines[3]) == "left % up % right % down %"
    assert 98 <= sum(shares) <= 102
    assert re.fullmatch(r"expects a return of \d+\.\d", lines[7])
    game.pause()
    assert len(game.panel()) <= PANEL_HEIGHT
    assert max(map(len, game.panel())) <= PANEL_WIDTH
    game.pause()
    while not game.is_over:
        game.tick()
    assert not any("return" in line for line in game.panel())
