"""Configs for training 2-simplicial Transformer agents on BoxWorld with IMPALA.

    python -m experiments.boxworld --config=PRESET --config.FIELD=VALUE --workdir=DIR

One training step is one IMPALA iteration: the agent acts for `unroll` steps in every environment, then makes
`updates` updates on `batch_size` trajectories each. Each preset's docstring gives the expected result, the
hardware and the time.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any, ClassVar, Literal, cast, get_args

import jax
import jax.numpy as jnp

from experiments import runtime
from experiments.boxworld import demonstrations as demonstrations_lib
from experiments.runtime.restarts import RestartsConfig
from simplicial import Agent, boxworld

ACTIONS = ("left", "up", "right", "down")
Kind = Literal["simplicial", "relational"]
World = Literal["bridge", "standard"]
Dtype = Literal["float32", "bfloat16"]
DTYPES: dict[Dtype, Any] = {"float32": jnp.float32, "bfloat16": jnp.bfloat16}
WORLDS: dict[World, boxworld.BoxWorldConfig] = {"bridge": boxworld.BRIDGE, "standard": boxworld.STANDARD}


def type_name(puzzle: Sequence[int]) -> str:
    """Names a puzzle type in metrics: "2" for length 2, "2-1-3" if it also has a bridge from 1 to 3."""
    length, lock, key = puzzle
    return f"{length}-{lock}-{key}" if lock else f"{length}"


def type_of(name: str) -> tuple[int, int, int]:
    """Parses a name made by `type_name`."""
    length, lock, key = [*map(int, name.split("-")), 0, 0][:3]
    return length, lock, key


@dataclasses.dataclass
class AgentConfig:
    """Configures the agent; the defaults are the paper's.

    Attributes:
        kind: "simplicial", or "relational" for the same agent without virtual entities and 2-simplicial
            attention.
        virtual_entities: number of virtual entities of the simplicial agent.
        blocks: number of times the Transformer block is applied.
        features: width of an entity.
        heads: number of 1-simplicial attention heads.
        two_simplicial_heads: number of 2-simplicial attention heads.
        two_simplicial_features: total output width of the 2-simplicial heads.
        head_features: widths of the dense layers after pooling.
        input_centre: colour value that is mapped to 0.
        input_scale: divisor applied after subtracting `input_centre`.
        dtype: compute dtype, "float32" or "bfloat16"; parameters are float32.
        pair_logit: logit of 2-simplicial attention, "unsigned" (the paper's) or "trilinear".
    """

    kind: Kind = "simplicial"
    virtual_entities: int = 2
    blocks: int = 2
    features: int = 64
    heads: int = 2
    two_simplicial_heads: int = 1
    two_simplicial_features: int = 48
    head_features: tuple[int, ...] = (256, 256, 256, 256)
    input_centre: float = 0.0
    input_scale: float = 255.0
    dtype: Dtype = "float32"
    pair_logit: Literal["unsigned", "trilinear"] = runtime.added("unsigned")

    def make(self) -> Agent:
        """Builds the agent; raises ValueError for an unknown kind or dtype."""
        runtime.one_of("agent.kind", self.kind, get_args(Kind))
        runtime.one_of("agent.dtype", self.dtype, get_args(Dtype))
        runtime.one_of("agent.pair_logit", self.pair_logit, ("unsigned", "trilinear"))
        is_simplicial = self.kind == "simplicial"
        if is_simplicial:
            runtime.at_least("agent.virtual_entities", self.virtual_entities, 1)
        return Agent(
            num_virtual_entities=self.virtual_entities if is_simplicial else 0,
            num_blocks=self.blocks,
            features=self.features,
            num_heads=self.heads,
            num_two_simplicial_heads=self.two_simplicial_heads,
            two_simplicial_features=self.two_simplicial_features,
            head_features=self.head_features,
            input_centre=self.input_centre,
            input_scale=self.input_scale,
            dtype=DTYPES[self.dtype],
            logit=self.pair_logit,
        )


@dataclasses.dataclass
class BoardConfig:
    """Configures the puzzles: one of the paper's two worlds, with optional changes (None keeps its value).

    `boxworld.BoxWorldConfig` documents each field.
    """

    world: World = "bridge"
    min_length: int | None = None
    max_length: int | None = None
    bridge_probability: float | None = None
    min_distractors: int | None = None
    max_distractors: int | None = None
    branch_length: int | None = None
    horizon: int | None = None
    rows: int | None = None
    cols: int | None = None

    def make(self) -> boxworld.BoxWorldConfig:
        """Builds the environment's config; raises ValueError if the puzzles do not fit on the board."""
        runtime.one_of("board.world", self.world, get_args(World))
        changes = {name: value for name, value in vars(self).items() if value is not None and name != "world"}
        config = WORLDS[self.world].replace(**changes)
        # Derived rather than configured: the state's arrays must have room for every possible trap.
        side = cast(int, config.max_distractors) * cast(int, config.branch_length)
        config = config.replace(traps=max(0, side) + config.bridge_traps)
        try:
            boxworld.puzzles(config)
        except ValueError as error:
            raise ValueError(f"board: {error}") from None
        return config

    @property
    def is_the_papers(self) -> bool:
        """Whether this is the environment of the published curves, bridge BoxWorld without changes."""
        return self == BoardConfig()


@dataclasses.dataclass
class Config(RestartsConfig):
    """Configures an agent, its environment and its training; the defaults are the paper's settings.

    Attributes:
        agent: see `AgentConfig`.
        board: see `BoardConfig`.
        seeds: number of runs trained in parallel in one program, with seeds `seed`, `seed` + 1, ...
        updates: number of updates per iteration. Each uses `batch_size` trajectories, so the number of
            environments is `batch_size` x `updates`.
        unroll: steps taken in each environment per iteration; the last one is used only for bootstrapping.
        groups: number of independent groups of environments, distributed over the devices. Must be a multiple
            of the number of devices and divide `batch_size`. A run can be continued on any number of devices
            that divides `groups`.
        lr: constant learning rate of RMSProp.
        clip: maximum norm of the gradient of the summed loss.
        decay: decay rate of RMSProp.
        epsilon: epsilon of RMSProp, inside the square root.
        discount: discount factor gamma.
        entropy_cost: weight of the entropy bonus.
        value_cost: weight of half the squared value error.
        eval_episodes: boards per evaluation and seed, drawn from the training distribution.
        final_episodes: boards per puzzle type in the final evaluation. The final evaluation also draws
            `final_episodes` times the number of types from the training distribution.
        eval_cap: number of steps after which an evaluation episode is stopped.
        learn_from: "rewards" for IMPALA, or "demonstrations" of the solver for imitation, which has no
            entropy bonus and uses Adam (without `decay` and `epsilon`); see `demonstrations.py`. The fields
            below are about imitation.
        practice_horizon: number of steps after which an episode ends, in place of the board's.
        practice_bridges: probability of a bridge, in place of the board's; negative for the board's, which is
            also used where boards cannot have bridges.
        expert_share: share of its steps that the solver takes in the last environment of a group; from none
            in the first half of them, which alone are tallied.
        marks_cost: weight of the losses of what comes next and of which boxes are traps; 0 for none.
        matrix_lr: learning rate of Muon for matrices; 0 for Adam alone.
        exchange_places: whether boxes and keys exchange places before every state.
        held_out: types of puzzles, by name such as "3-1-5", that are practised without learning from them;
            () with rewards.
        decay_steps: number of iterations after which the learning rates have fallen to a hundredth; 0 for
            constant ones, -1 for those of the run.
        first: preset of a run whose weights this one starts from. That run has this one's agent, board and
            seeds, and is made before it, in `.first` below the workdir; "" for none.
        first_steps: its number of iterations; 0 for the preset's.
    """

    experiment: ClassVar[str] = "boxworld"
    size_fields: ClassVar[tuple[str, ...]] = (
        *("agent", "board.world", "board.rows", "board.cols", "seeds", "unroll"),
    )

    batch_size: int = 32
    agent: AgentConfig = dataclasses.field(default_factory=AgentConfig)
    board: BoardConfig = dataclasses.field(default_factory=BoardConfig)
    seeds: int = 1
    updates: int = 16
    unroll: int = 40
    groups: int = 8
    lr: float = 2e-4
    clip: float = 40.0
    decay: float = 0.99
    epsilon: float = 0.1
    discount: float = 0.99
    entropy_cost: float = 0.005
    value_cost: float = 0.5
    eval_episodes: int = 1000
    final_episodes: int = 1000
    eval_cap: int = 400
    learn_from: Literal["rewards", "demonstrations"] = runtime.added("rewards")
    practice_horizon: int = runtime.added(120)
    practice_bridges: float = runtime.added(-1.0)
    expert_share: float = runtime.added(0.0)
    marks_cost: float = runtime.added(0.0)
    matrix_lr: float = runtime.added(0.0)
    decay_steps: int = runtime.added(0)
    held_out: tuple[str, ...] = runtime.added(())
    exchange_places: bool = runtime.added(True)
    first: str = runtime.added("")
    first_steps: int = runtime.added(0)

    def validate(self) -> None:
        """See `RunConfig.validate`; also builds the agent and the board to surface their errors early."""
        super().validate()
        for name in ("seeds", "updates", "groups", "eval_episodes", "final_episodes", "eval_cap"):
            runtime.at_least(name, getattr(self, name), 1)
        runtime.at_least("practice_horizon", self.practice_horizon, 1)
        runtime.one_of("learn_from", self.learn_from, ["rewards", "demonstrations"])
        runtime.at_least("unroll", self.unroll, 2)
        for name in ("lr", "decay", "discount", "entropy_cost", "value_cost", "expert_share", "marks_cost"):
            runtime.at_least(name, getattr(self, name), 0)
        for name, least in (("matrix_lr", 0), ("first_steps", 0), ("decay_steps", -1)):
            runtime.at_least(name, getattr(self, name), least)
        for name in ("clip", "epsilon"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name}: got {getattr(self, name)}, expected a value above 0")
        for name in ("decay", "discount", "practice_bridges", "expert_share"):
            if getattr(self, name) > 1:
                raise ValueError(f"{name}: got {getattr(self, name)}, expected at most 1")
        if self.batch_size % self.groups:
            raise ValueError(f"groups: got {self.groups}, expected a divisor of batch_size={self.batch_size}")
        if self.groups % jax.device_count():
            raise ValueError(
                f"groups: got {self.groups}, expected a multiple of the {jax.device_count()} devices"
            )
        known = [type_name(puzzle) for puzzle in boxworld.puzzles(self.board.make())]
        for name in self.held_out:
            runtime.one_of("held_out", name, known)
        if self.restarts > 1:
            alone = {"learn_from": "demonstrations", "seeds": 1, "first": ""}
            for name, wanted in alone.items():
                if (value := getattr(self, name)) != wanted:
                    raise ValueError(
                        f"{name}: got {value!r}, expected {wanted!r} with restarts={self.restarts}"
                    )
        if self.first:
            if self.init_from:
                raise ValueError(f"first: got {self.first!r}, expected '' with init_from={self.init_from!r}")
            self.first_config().validate()
        if self.learn_from == "demonstrations":
            boxworld.puzzles(self.practice())
        elif self.held_out:
            raise ValueError(
                f"held_out: got {self.held_out}, expected () with learn_from={self.learn_from!r}"
            )
        jax.eval_shape(self.init_params, jax.random.key(0))

    def cpu_devices(self, cores: int, parts: int) -> int:
        """See `RunConfig.cpu_devices`: as many as possible that have whole groups and equal parts."""
        fits = (
            count
            for count in range(cores, 0, -1)
            if self.groups % count == 0 and self.batch_size // count % parts == 0
        )
        return next(fits, 1)

    def check_layout(self, layout: runtime.Layout) -> None:
        """See `RunConfig.check_layout`: groups are distributed over all devices, nothing else is split."""
        if layout.model > 1 or layout.fsdp:
            raise ValueError(
                f"layout: got {layout}, expected no model axis and no fsdp: agents are too small"
            )
        layout.check(self.groups, jax.device_count())
        self.check_batch(layout, self.batch_size)

    def hardly_evaluated(self) -> "Config":
        """See `RunConfig.hardly_evaluated`: an agent that has learned little takes as long as it may."""
        return dataclasses.replace(super().hardly_evaluated(), final_episodes=1, eval_episodes=1, eval_cap=1)

    def first_config(self) -> "Config":
        """Returns the config of the run before this one; raises ValueError for an unknown preset."""
        runtime.one_of("first", self.first, ["demonstrations", "demonstrations_long"])
        first = get_config(self.first)
        first = first.with_steps(self.first_steps or first.steps)
        own = ("agent", "board", "seed", "seeds", "session_seconds", "tensorboard", "log")
        return dataclasses.replace(first, **{name: getattr(self, name) for name in own})

    def practice(self) -> boxworld.BoxWorldConfig:
        """Returns the environment of imitation."""
        board = self.board.make().replace(horizon=self.practice_horizon)
        if self.practice_bridges < 0 or board.gem_locks == 1:
            return board
        return board.replace(bridge_probability=self.practice_bridges)

    def init_params(self, key: jax.Array) -> Any:
        """Initializes the agent's parameters, and those that only training has."""
        board, agent = self.board.make(), self.agent.make()
        picture = jnp.zeros((1, board.rows, board.cols + 1, 3), jnp.uint8)
        params = agent.init(key, picture)["params"]
        if self.learn_from == "rewards" or not self.marks_cost:
            return params
        marks = demonstrations_lib.Marks().init(jax.random.fold_in(key, 1), jnp.zeros((1, 1, agent.features)))
        return {**params, demonstrations_lib.MARKS: marks["params"]}

    @property
    def decay_iterations(self) -> int:
        """Number of iterations in which the learning rates of imitation fall; 0 for constant ones."""
        return self.steps if self.decay_steps < 0 else self.decay_steps

    @property
    def environments(self) -> int:
        """Number of environments per seed."""
        return self.batch_size * self.updates

    @property
    def frames_per_step(self) -> int:
        """Environment steps per iteration, for one seed."""
        return self.environments * self.unroll


def paper() -> Config:
    """Bridge BoxWorld as in the paper: 5.5e9 steps in 268,500 iterations of 512 environments x 40 steps.

    `--config.agent.kind=relational` selects the other agent. The published fraction solved is .83 after 1e9
    steps for both, then .98 (simplicial) and .92 (relational) after 5e9. Meant for an accelerator: two CPU
    cores run about 6,000 steps/s and would need ten days.
    """
    return Config(steps=268_500, log_every=50, checkpoint_every=500, eval_every=5000)


def paper_standard() -> Config:
    """BoxWorld of Zambaldi et al. as in the paper: relational, over 93 % solved after 2.35e9 steps.

    `--config.agent.kind=simplicial` selects the other agent. Meant for an accelerator.
    """
    agent, board = AgentConfig(kind="relational"), BoardConfig(world="standard")
    return dataclasses.replace(paper(), agent=agent, board=board, steps=114_800)


def paper_depth() -> Config:
    """The paper's depth control: a relational agent with four blocks on bridge BoxWorld.

    The paper's two trials stayed at a plateau of .85. Meant for an accelerator.
    """
    return dataclasses.replace(paper(), agent=AgentConfig(kind="relational", blocks=4))


def burst() -> Config:
    """`paper` in sessions of nine minutes: continues the run in the workdir, then saves and exits.

    For accelerators with limited sessions: `--workdir` names the run of `paper` (or an earlier burst) to
    continue, and `--config.session_seconds` sets the length of the session.
    """
    return dataclasses.replace(paper(), session_seconds=540.0)


def demonstrations() -> Config:
    """Imitates the solver on bridge boards, with the paper's boards and agent sizes; see `demonstrations.py`.

    `--config.agent.kind=relational` selects the other agent, `--config.board.world=standard` the other world.
    An iteration is 512 environments x 2 steps, used in 4 updates of 256 states. Colours are centred, which
    the paper's agent can express but takes long to learn. The relational agent solves .935 of bridge boards
    within 400 steps (a random policy: .247) after 8.3 minutes on one CPU core, and 4 more for the tests.
    """
    return Config(
        agent=AgentConfig(input_centre=199.0, input_scale=64.0),
        learn_from="demonstrations",
        batch_size=128,
        updates=4,
        unroll=2,
        accumulate=4,
        lr=1e-3,
        matrix_lr=1e-2,
        decay_steps=-1,
        clip=256.0,
        value_cost=0.05,
        marks_cost=1.0,
        expert_share=1.0,
        practice_bridges=0.75,
        steps=1000,
        log_every=20,
        checkpoint_every=100,
        eval_every=200,
    )


def demonstrations_long() -> Config:
    """`demonstrations` for agents to keep: 5.1 million states, from the best of four starts.

    How well a run ends shows in its training loss after 200 iterations. The relational agent takes 45 to 85
    minutes on one CPU core, the simplicial one half as long again. On bridge boards that one needs more
    starts: `--config.restarts=12 --config.restart_steps=140`. On standard boards
    (`--config.board.world=standard`), 3000 iterations are enough.
    """
    return dataclasses.replace(demonstrations(), steps=5000, restarts=4, restart_steps=200, eval_every=500)


def demonstrations_then_rewards() -> Config:
    """`demonstrations`, then the paper's IMPALA from there for 8.2e6 steps.

    `--config.first=demonstrations_long` begins with that, and `--config.board.world=standard` is for the
    other world. A relational agent that solved .935 of bridge boards solves .931 after it: 70 minutes more on
    one CPU core.
    """
    agent = demonstrations().agent
    often = {"log_every": 10, "checkpoint_every": 50, "eval_every": 100}
    return dataclasses.replace(paper(), agent=agent, first="demonstrations", steps=400, **often)


def quick() -> Config:
    """Smoke run: a small simplicial agent on 5 x 6 boards with one key and one distractor, 40 steps at most.

    Checks that everything works and that the agent learns. Environment, sizes and settings differ from the
    paper's (colours are centred, the learning rate is higher). Solves .98, .99 and .70 of new boards with
    three seeds (a random policy: .09), after about two minutes on two CPU cores.
    """
    return Config(
        agent=AgentConfig(
            features=32,
            two_simplicial_features=16,
            head_features=(64, 64),
            input_centre=199.0,
            input_scale=64.0,
        ),
        board=BoardConfig(
            world="standard", rows=5, cols=6, min_length=1, max_length=1, max_distractors=1, horizon=40
        ),
        batch_size=32,
        updates=4,
        unroll=20,
        lr=3e-3,
        discount=0.95,
        steps=480,
        log_every=10,
        checkpoint_every=120,
    )


get_config = runtime.Presets(
    quick=quick,
    paper=paper,
    paper_standard=paper_standard,
    paper_depth=paper_depth,
    burst=burst,
    demonstrations=demonstrations,
    demonstrations_long=demonstrations_long,
    demonstrations_then_rewards=demonstrations_then_rewards,
)
