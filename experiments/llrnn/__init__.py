"""The linear logic RNN (Hu and Murfet 2017), its memories and an LSTM on sequence tasks."""

from experiments import runtime
from experiments.llrnn import claims, load, tour, train
from experiments.llrnn.config import Config, get_config

EXPERIMENT = runtime.Experiment(
    config=Config,
    presets=get_config,
    main=train.main,
    abstract_state=train.abstract_state,
    open_model=load.open_model,
    tour_stop=tour.tour_stop,
    card=runtime.Card(
        title=lambda config: f"the cell {config.cell.name} on the task {config.task}",
        data="None from outside: sequences are drawn by `llrnn.tasks`.",
        limits="It knows its one task; beyond the lengths in the table nothing was measured.",
    ),
    claims=claims.CLAIMS,
)
