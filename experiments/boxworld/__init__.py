"""BoxWorld and bridge BoxWorld (Clift et al. 2020): agents trained with IMPALA."""

from experiments import runtime
from experiments.boxworld import claims, load, showcase, tour, train
from experiments.boxworld.config import Config, get_config
from experiments.boxworld.engine import Impala

EXPERIMENT = runtime.Experiment(
    config=Config,
    presets=get_config,
    main=train.main,
    abstract_state=lambda config: Impala(config).abstract_state(),
    open_model=load.open_model,
    tour_stop=tour.tour_stop,
    showcase=showcase.showcase,
    card=runtime.Card(
        title=lambda config: f"a {config.agent.kind} agent for a small BoxWorld",
        data="No external data: `simplicial.boxworld` generates the boards.",
        limits="A small board with one key: not the paper's environment, agent or training.",
    ),
    claims=claims.CLAIMS,
)
