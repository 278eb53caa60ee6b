"""Configs of agents of the 2-simplicial Transformer that learn BoxWorld by IMPALA.

    python -m experiments.boxworld --config=PRESET --config.FIELD=VALUE --workdir=DIR

A step of these runs is an iteration: the agent acts for `unroll` steps in every environment, then learns from
these steps in `updates` updates of `batch_size` trajectories. Each preset's docstring says what it should
reach, on which hardware, in how long.
"""

import dataclasses
from typing import Any, ClassVar, cast

import jax
import jax.numpy as jnp

from experiments import runtime
from simplicial import Agent, boxworld

ACTIONS = ("left", "up", "right", "down")
WORLDS = {"bridge": boxworld.BRIDGE, "standard": boxworld.STANDARD}
KINDS = ("simplicial", "relational")
DTYPES = {"float32": jnp.float32, "bfloat16": jnp.bfloat16}


@dataclasses.dataclass
class AgentConfig:
    """The agent; the defaults are the paper's.

    Attributes:
        kind: "simplicial", or "relational": the same without virtual entities and 2-simplicial attention.
        virtual_entities: of the simplicial agent.
        blocks: how often the Transformer block is applied.
        features: width of an entity.
        heads: of the 1-simplicial attention.
        two_simplicial_heads: of the 2-simplicial attention.
        two_simplicial_features: outputs of all its heads together.
        head_features: widths of the dense layers after pooling.
        input_centre: colour that enters as 0.
        input_scale: what the difference to it is divided by.
        dtype: "float32" or "bfloat16", of products; parameters are float32.
    """

    kind: str = "simplicial"
    virtual_entities: int = 2
    blocks: int = 2
    features: int = 64
    heads: int = 2
    two_simplicial_heads: int = 1
    two_simplicial_features: int = 48
    head_features: tuple[int, ...] = (256, 256, 256, 256)
    input_centre: float = 0.0
    input_scale: float = 255.0
    dtype: str = "float32"

    def make(self) -> Agent:
        """The agent; ValueError for an unknown kind or dtype."""
        runtime.one_of("agent.kind", self.kind, KINDS)
        runtime.one_of("agent.dtype", self.dtype, DTYPES)
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
        )


@dataclasses.dataclass
class BoardConfig:
    """The puzzles: one of the paper's two worlds, and what to change of it (None leaves it).

    `boxworld.BoxWorldConfig` documents each field.
    """

    world: str = "bridge"
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
        """The environment's config; ValueError for what does not fit a board."""
        runtime.one_of("board.world", self.world, WORLDS)
        changes = {name: value for name, value in vars(self).items() if value is not None and name != "world"}
        config = WORLDS[self.world].replace(**changes)
        # As many as there is room for in the state's arrays: a field of its own would be one to get wrong.
        side = cast(int, config.max_distractors) * cast(int, config.branch_length)
        config = config.replace(traps=max(0, side) + config.bridge_traps)
        try:
            boxworld.puzzles(config)
        except ValueError as error:
            raise ValueError(f"board: {error}") from None
        return config

    @property
    def is_the_papers(self) -> bool:
        """Whether this is the environment of the published curves: bridge BoxWorld, nothing changed."""
        return self == BoardConfig()


@dataclasses.dataclass
class Config(runtime.RunConfig):
    """An agent, an environment, and how the one learns the other; the defaults are the paper's settings.

    Attributes:
        agent: see `AgentConfig`.
        board: see `BoardConfig`.
        seeds: runs side by side in one program, with seeds `seed`, `seed` + 1, ...
        updates: into how many updates an iteration is cut; with `batch_size` trajectories in each,
            `batch_size` x `updates` is the number of environments.
        unroll: steps acted in each environment in an iteration; the last only bootstraps.
        groups: environments are kept in so many groups that never look at each other, spread over the
            devices: a multiple of their number and a divisor of `batch_size`. A run continues on any number
            of devices that divides it.
        lr: RMSProp's learning rate, constant.
        clip: the norm that the gradient of the summed loss is clipped to.
        decay: RMSProp's.
        epsilon: RMSProp's, inside the square root.
        discount: gamma.
        entropy_cost: weight of the entropy.
        value_cost: weight of half the squared error of the values.
        eval_episodes: boards in an evaluation, drawn as in training, for each seed.
        final_episodes: boards of every type of puzzle at the end, and as many for each type drawn as in
            training.
        eval_cap: steps after which an episode of an evaluation is given up.
    """

    experiment: ClassVar[str] = "boxworld"

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

    def validate(self) -> None:
        """See `RunConfig.validate`; builds agent and board, so that what they refuse is refused here."""
        super().validate()
        for name in ("seeds", "updates", "groups", "eval_episodes", "final_episodes", "eval_cap"):
            runtime.at_least(name, getattr(self, name), 1)
        runtime.at_least("unroll", self.unroll, 2)
        for name in ("lr", "decay", "discount", "entropy_cost", "value_cost"):
            runtime.at_least(name, getattr(self, name), 0)
        for name in ("clip", "epsilon"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name}={getattr(self, name)} must be above 0")
        for name in ("decay", "discount"):
            if getattr(self, name) > 1:
                raise ValueError(f"{name}={getattr(self, name)} must be at most 1")
        if self.batch_size % self.groups:
            raise ValueError(f"groups={self.groups} must divide batch_size={self.batch_size}")
        if self.groups % jax.device_count():
            raise ValueError(
                f"groups={self.groups} must be a multiple of the number of devices, {jax.device_count()}"
            )
        jax.eval_shape(self.init_params, jax.random.key(0))

    def check_layout(self, layout: runtime.Layout) -> None:
        """See `RunConfig.check_layout`: the groups are spread over all devices, nothing else is split."""
        if layout.model > 1 or layout.fsdp:
            raise ValueError(f"agents are too small to be split: got {layout}, expected only a mode")
        layout.check(self.groups, jax.device_count())

    def init_params(self, key: jax.Array) -> Any:
        """The agent's parameters before training."""
        board = self.board.make()
        picture = jnp.zeros((1, board.rows, board.cols + 1, 3), jnp.uint8)
        return self.agent.make().init(key, picture)["params"]

    @property
    def environments(self) -> int:
        """How many are acted in side by side, for each seed."""
        return self.batch_size * self.updates

    @property
    def frames_per_step(self) -> int:
        """Steps of all environments of one seed in an iteration."""
        return self.environments * self.unroll


def paper() -> Config:
    """Bridge BoxWorld as in the paper: 5.5e9 steps in 268,500 iterations of 512 environments x 40 steps.

    `--config.agent.kind=relational` is the other agent. The published fraction solved is .83 after 1e9 steps
    for both, then .98 (simplicial) and .92 (relational) after 5e9. Meant for an accelerator: on two CPU cores
    it makes about 2,000 steps/s, a month for the whole.
    """
    return Config(steps=268_500, log_every=50, checkpoint_every=500, eval_every=5000)


def paper_standard() -> Config:
    """BoxWorld of Zambaldi et al. as in the paper: relational, over 93 % solved after 2.35e9 steps.

    `--config.agent.kind=simplicial` is the other agent. Meant for an accelerator.
    """
    agent, board = AgentConfig(kind="relational"), BoardConfig(world="standard")
    return dataclasses.replace(paper(), agent=agent, board=board, steps=114_800)


def paper_depth() -> Config:
    """The paper's control for depth: a relational agent with four blocks, bridge BoxWorld.

    Its two trials did not pass the plateau of .85. Meant for an accelerator.
    """
    return dataclasses.replace(paper(), agent=AgentConfig(kind="relational", blocks=4))


def burst() -> Config:
    """`paper` for nine minutes at a time: continues the run in the workdir, then saves and ends.

    For accelerators that are lent for a while: `--workdir` names the run of `paper` (or of an earlier burst)
    to continue, `--config.session_seconds` the available time.
    """
    return dataclasses.replace(paper(), session_seconds=540.0)


def quick() -> Config:
    """A smoke run: a small simplicial agent on a 5 x 6 board, one key and one distractor, 40 steps at most.

    Not the paper's environment, sizes or settings (colours are centred, the learning rate is higher): it
    shows that everything works and that the agent learns. Solves over .9 of fresh boards (a random policy:
    .09) after about two minutes on two CPU cores.
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
    quick=quick, paper=paper, paper_standard=paper_standard, paper_depth=paper_depth, burst=burst
)
