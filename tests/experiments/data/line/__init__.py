"""A line through points: the smallest experiment that has weights, an export and a stop on the tour."""

from experiments import runtime

from . import load, tour, train
from .config import Config, get_config

EXPERIMENT = runtime.Experiment(
    config=Config,
    presets=get_config,
    main=train.main,
    abstract_state=train.abstract_state,
    open_model=load.open_model,
    tour_stop=tour.tour_stop,
    card=runtime.Card(
        title=lambda config: f"a line of slope {config.slope:g}",
        data="None from outside: points are drawn.",
        limits="It is a line.",
    ),
)
