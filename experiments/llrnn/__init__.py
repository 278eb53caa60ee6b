"""Linear logic RNNs (Hu and Murfet 2017), memories and an LSTM on sequence tasks."""

from experiments import runtime
from experiments.llrnn import claims, load, showcase, tour, train
from experiments.llrnn.config import Config, get_config

EXPERIMENT = runtime.Experiment(
    config=Config,
    presets=get_config,
    main=train.main,
    abstract_state=train.abstract_state,
    open_model=load.open_model,
    tour_stop=tour.tour_stop,
    showcase=showcase.showcase,
    card=runtime.Card(
        title=lambda config: f"a {config.cell.name} cell on the task {config.task}",
        data="No external data: `llrnn.tasks` generates the sequences.",
        limits="Trained on a single task; not evaluated beyond the lengths in the table.",
    ),
    claims=claims.CLAIMS,
)
