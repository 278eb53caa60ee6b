"""BoxWorld and bridge BoxWorld (Clift et al. 2020): agents trained with IMPALA."""

from experiments import runtime
from experiments.boxworld import claims, load, showcase, tour, train
from experiments.boxworld.config import BoardConfig, Config, get_config
from experiments.boxworld.engine import Impala


def _title(config: Config) -> str:
    names = {"bridge": "bridge BoxWorld", "standard": "BoxWorld"}
    is_small = config.board.rows is not None or config.board.cols is not None
    return f"a {config.agent.kind} agent for {'a small BoxWorld' if is_small else names[config.board.world]}"


def _limits(config: Config) -> str:
    if config.board == get_config("quick").board:
        return "A small board with one key: not the paper's environment, agent or training."
    if config.board != BoardConfig(world=config.board.world):
        return "Boards that differ from the paper's."
    if config.learn_from == "demonstrations":
        return "It imitates a solver on the paper's boards; the paper's agents learned from rewards alone."
    if config.init_from:
        return "Its training with the paper's method began from weights of another run, not from random ones."
    return "The paper's boards, with far fewer steps than the paper's."


EXPERIMENT = runtime.Experiment(
    config=Config,
    presets=get_config,
    main=train.main,
    abstract_state=lambda config: Impala(config).abstract_state(),
    open_model=load.open_model,
    tour_stop=tour.tour_stop,
    showcase=showcase.showcase,
    card=runtime.Card(
        title=_title,
        data="No external data: `simplicial.boxworld` generates the boards.",
        limits=_limits,
    ),
    claims=claims.CLAIMS,
)
