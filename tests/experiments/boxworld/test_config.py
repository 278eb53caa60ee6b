"""Configs of BoxWorld: presets, the paper's settings, boards, mistakes."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments import runtime
from experiments.boxworld.config import WORLDS, AgentConfig, BoardConfig, Config, get_config
from simplicial import Agent, boxworld
from tests.experiments.boxworld.small import small


@pytest.mark.parametrize("preset", get_config.names)
def test_presets_are_valid(preset):
    get_config(preset).validate()


@pytest.mark.parametrize("preset", ["demonstrations", "demonstrations_long", "demonstrations_then_rewards"])
def test_the_solver_is_imitated_in_both_worlds(preset):
    config = dataclasses.replace(get_config(preset), board=BoardConfig(world="standard"))
    config.validate()


def test_the_papers_settings():
    """Section 5 and Appendix: 5.5e9 steps, 512 environments, 1280 steps in an update."""
    config = get_config("paper")
    assert config.frames_per_step == 20480
    assert config.steps * config.frames_per_step == pytest.approx(5.5e9, rel=1e-3)
    assert (config.batch_size, config.unroll, config.updates, config.environments) == (32, 40, 16, 512)
    assert (config.lr, config.decay, config.epsilon, config.clip) == (2e-4, 0.99, 0.1, 40)
    assert (config.discount, config.entropy_cost, config.value_cost) == (0.99, 0.005, 0.5)
    assert config.board.is_the_papers
    assert (config.eval_episodes, config.final_episodes, config.eval_cap, config.seeds) == (
        1000,
        1000,
        400,
        1,
    )
    depth = get_config("paper_depth")
    assert (depth.agent.make().num_blocks, depth.agent.make().num_virtual_entities) == (4, 0)
    standard = get_config("paper_standard")
    assert standard.board.make() == WORLDS["standard"]
    assert standard.agent.kind == "relational"
    assert standard.steps * standard.frames_per_step == pytest.approx(2.35e9, rel=1e-3)
    assert not standard.board.is_the_papers


def test_the_quick_run_is_small():
    """1.2 million steps on 5 x 6 boards with one key, at most one distractor and 40 steps."""
    config = get_config("quick")
    assert config.steps * config.frames_per_step == pytest.approx(1.2e6, rel=0.03)
    board = config.board.make()
    assert (board.rows, board.cols, board.gem_locks, board.horizon) == (5, 6, 1, 40)
    assert (board.min_length, board.max_length, board.max_distractors, board.traps) == (1, 1, 1, 1)
    assert (config.agent.input_centre, config.discount) == (199, 0.95)


def test_an_agent_has_the_sizes_of_its_config():
    """Numbers that all differ; a relational agent has no virtual entities."""
    config = AgentConfig(
        virtual_entities=3, blocks=4, features=20, heads=5, two_simplicial_heads=6,
        two_simplicial_features=42, head_features=(7, 8), input_centre=9.0, input_scale=10.0,
        dtype="bfloat16",
    )  # fmt: skip
    made = config.make()
    assert (made.num_virtual_entities, made.num_blocks, made.features, made.num_heads) == (3, 4, 20, 5)
    assert (made.num_two_simplicial_heads, made.two_simplicial_features) == (6, 42)
    assert (made.head_features, made.input_centre, made.input_scale) == ((7, 8), 9.0, 10.0)
    assert (made.dtype, made.param_dtype) == (jnp.bfloat16, jnp.float32)
    assert dataclasses.replace(config, kind="relational").make().num_virtual_entities == 0
    assert AgentConfig(pair_logit="trilinear").make().logit == "trilinear"
    assert AgentConfig().make() == Agent(dtype=jnp.float32)  # the paper's


def test_a_burst_continues_a_run_of_the_paper():
    """The two presets differ in what may differ between sessions only."""
    burst, paper = get_config("burst"), get_config("paper")
    different = [
        field.name
        for field in dataclasses.fields(Config)
        if getattr(burst, field.name) != getattr(paper, field.name)
    ]
    assert different == ["session_seconds"]
    fields = {field.name: field for field in dataclasses.fields(Config)}
    assert fields["session_seconds"].metadata["resumable"]


def test_parameter_counts_of_the_presets():
    def count(agent):
        picture = jax.ShapeDtypeStruct((1, 7, 10, 3), np.uint8)
        return sum(
            leaf.size for leaf in jax.tree.leaves(jax.eval_shape(agent.init, jax.random.key(0), picture))
        )

    assert count(get_config("paper").agent.make()) == 365_513
    assert count(AgentConfig(kind="relational").make()) == 239_241


def agent(**fields):
    return {"agent": dataclasses.replace(AgentConfig(), **fields)}


def board(**fields):
    return {"board": dataclasses.replace(BoardConfig(), **fields)}


def starts(**fields):
    return {"restarts": 2, "restart_steps": small().log_every, **fields}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (agent(kind="cubic"), r"agent.kind: got 'cubic', expected one of 'simplicial'"),
        (agent(dtype="float8"), r"agent.dtype: got 'float8', expected one of 'float32'"),
        (agent(virtual_entities=0), r"agent.virtual_entities: got 0, expected at least 1"),
        (agent(features=63), r"features.*63"),
        (board(world="flat"), r"board.world: got 'flat', expected one of 'bridge'"),
        (board(max_length=9), r"board: .*max_length"),
        ({"groups": 3}, r"groups: got 3, expected a divisor of batch_size=16"),
        ({"unroll": 1}, r"unroll: got 1, expected at least 2"),
        *(
            ({name: 0}, rf"{name}: got 0, expected at least 1")
            for name in ("seeds", "updates", "groups", "eval_episodes", "final_episodes", "eval_cap")
        ),
        *(
            ({name: -0.1}, rf"{name}: got -0.1, expected at least 0")
            for name in ("lr", "decay", "discount", "entropy_cost", "value_cost")
        ),
        ({"clip": 0.0}, r"clip: got 0.0, expected a value above 0"),
        ({"decay": 1.5}, r"decay: got 1.5, expected at most 1"),
        ({"epsilon": 0.0}, r"epsilon: got 0.0, expected a value above 0"),
        ({"discount": 1.5}, r"discount: got 1.5, expected at most 1"),
        ({"first": "quick"}, r"first: got 'quick', expected one of 'demonstrations', "),
        ({"first": "demonstrations", "init_from": "run"}, r"first: got .*, expected '' with init_from='run'"),
        ({"restarts": 2}, r"restart_steps: got 0, expected a multiple of log_every=\d+ from 1 to steps="),
        (starts(), r"learn_from: got 'rewards', expected 'demonstrations' with restarts=2"),
        (starts(learn_from="demonstrations", seeds=2), r"seeds: got 2, expected 1 with restarts=2"),
        (starts(learn_from="demonstrations", seeds=1, first="x"), r"first: got 'x', expected '' with"),
        ({"held_out": ("1",)}, r"held_out: got \('1',\), expected \(\) with learn_from='rewards'"),
        (
            {"learn_from": "demonstrations", "practice_bridges": 0.75}
            | board(rows=5, cols=9, max_length=2, bridge_probability=0.0),
            r"max_length=2.*slots with the bridge, expected at most 5",
        ),
        ({"first_steps": -1}, r"first_steps: got -1, expected at least 0"),
        ({"decay_steps": -2}, r"decay_steps: got -2, expected at least -1"),
        ({"session_seconds": -1.0}, r"session_seconds: got -1.0, expected at least 0"),
    ],
)  # fmt: skip
def test_a_mistake_in_a_config_is_named(change, message):
    with pytest.raises(ValueError, match=message):
        small(**change).validate()


def test_the_run_before_a_run():
    """It has the agent, the board and the seeds, and its own method; a decay ends with it."""
    config = dataclasses.replace(get_config("demonstrations_then_rewards"), seed=3, first_steps=70)
    config.validate()
    first = config.first_config()
    expected = get_config("demonstrations").with_steps(70)
    assert first == dataclasses.replace(expected, agent=config.agent, seed=3)
    assert first.decay_iterations == 70
    assert dataclasses.replace(config, first_steps=0).first_config().steps == expected.with_steps(1000).steps
    long = dataclasses.replace(config, first="demonstrations_long", first_steps=0)
    long.validate()
    assert (long.first_config().steps, long.first_config().restarts) == (5000, 4)
    config = dataclasses.replace(config, board=BoardConfig(world="standard"), seeds=2)
    assert config.first_config().board.world == "standard"
    assert config.first_config().seeds == 2
    assert config.learn_from == "rewards"


def test_bounds_themselves_are_valid():
    small(decay=1.0, discount=1.0, lr=0.0, entropy_cost=0.0, value_cost=0.0, unroll=2).validate()


@pytest.mark.parametrize(
    ("cores", "parts", "devices"),
    [(1, 1, 1), (2, 1, 2), (3, 1, 2), (64, 1, 4), (64, 4, 4), (4, 8, 2), (4, 5, 1)],
)
def test_cores_are_devices_with_whole_groups_and_parts(cores, parts, devices):
    assert small(groups=4, batch_size=16).cpu_devices(cores, parts) == devices


def test_groups_are_spread_over_the_devices(monkeypatch):
    config = small(groups=4)
    config.validate()
    config.check_layout(runtime.Layout())
    with pytest.raises(ValueError, match="accumulate: got 3, expected a divisor of"):
        small(groups=4, accumulate=3).check_layout(runtime.Layout())
    monkeypatch.setattr(jax, "device_count", lambda: 8)
    with pytest.raises(ValueError, match="groups: got 4, expected a multiple of the 8 devices"):
        config.validate()
    with pytest.raises(ValueError, match="got 4, expected a multiple of 8"):
        config.check_layout(runtime.Layout())


@pytest.mark.parametrize(
    ("board", "message"),
    [
        (BoardConfig(min_length=4, max_length=4), "max_length=4.*slots"),
        (
            BoardConfig(world="standard", bridge_probability=0.5),
            "bridge_probability: got 0.5, expected 0 for a Gem with one lock",
        ),
        (
            BoardConfig(world="standard", min_distractors=-1, max_distractors=-1),
            "min_distractors: got -1, expected an integer of at least 0",
        ),
    ],
)
def test_a_board_that_cannot_be_is_refused(board, message):
    with pytest.raises(ValueError, match=message):
        board.make()


def test_boards():
    board = BoardConfig(
        min_length=2, max_length=2, bridge_probability=1.0, min_distractors=1, max_distractors=1
    )
    state = jax.device_get(jax.jit(boxworld.reset)(jax.random.key(0), board.make()))
    assert state.puzzle[0] == 2
    assert state.puzzle[1] > 0
    assert state.puzzle[3] == 1
    changes = {
        "min_length": 2, "max_length": 3, "min_distractors": 1, "max_distractors": 2, "branch_length": 2,
        "horizon": 9, "rows": 9, "cols": 12,
    }  # fmt: skip
    for world, bridge in (("standard", 0), ("bridge", 1)):
        made = BoardConfig(world=world, **changes).make()
        assert {name: getattr(made, name) for name in changes} == changes
        assert made.traps == 4 + bridge
        assert made.bridge_probability == (0.5 if bridge else 0)


def test_measurements_of_training_wait_for_no_evaluation():
    """An agent that has learned nothing takes all steps that it may."""
    config = dataclasses.replace(get_config("demonstrations"), steps=40).hardly_evaluated()
    config.validate()
    assert (config.eval_every, config.final_episodes, config.eval_episodes, config.eval_cap) == (0, 1, 1, 1)
    assert config.steps == 40
