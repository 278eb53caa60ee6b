"""The loss of IMPALA (Espeholt et al. 2018) in plain PyTorch, with the settings of Clift et al. (2020).

Axis letters: B trajectories, T steps, A actions.
"""

from collections.abc import Mapping

import torch  # pyrefly: ignore[missing-import]
from torch import nn  # pyrefly: ignore[missing-import]


def v_trace(ratio, discount, reward, value, bootstrap):
    """Returns targets and advantages [B, T] for ratios that are clipped at 1 (0 at truncated steps).

    The recursion over time is a Python loop from the last step to the first.
    """
    next_value = torch.cat((value[:, 1:], bootstrap[:, None]), dim=1)
    delta = ratio * (reward + discount * next_value - value)
    decay, error, errors = discount * ratio, torch.zeros_like(bootstrap), []
    for step in reversed(range(value.shape[1])):
        error = delta[:, step] + decay[:, step] * error
        errors.append(error)
    target = value + torch.stack(errors[::-1], dim=1)
    next_target = torch.cat((target[:, 1:], bootstrap[:, None]), dim=1)
    return target, ratio * (reward + discount * next_target - value)


def loss(
    agent: nn.Module,
    batch: Mapping[str, torch.Tensor],
    *,
    discount: float,
    entropy_cost: float,
    value_cost: float,
) -> torch.Tensor:
    """Returns the loss of trajectories, summed over all steps but the last, which only bootstraps."""
    observation = batch["observation"]
    logits, value = (x.unflatten(0, observation.shape[:2]) for x in agent(observation.flatten(0, 1)))
    seen = {name: array[:, :-1] for name, array in batch.items()}
    log_policy = logits[:, :-1].log_softmax(-1)
    action = seen["action"].long()[..., None]
    chosen = log_policy.gather(-1, action)[..., 0]
    valid = ~seen["truncated"]
    with torch.no_grad():
        ratio = (chosen - seen["logits"].log_softmax(-1).gather(-1, action)[..., 0]).exp().clamp(max=1)
        target, advantage = v_trace(
            ratio * valid, discount * ~seen["terminated"], seen["reward"], value[:, :-1], value[:, -1]
        )
    policy = -(chosen * advantage).sum()
    error = 0.5 * (target - value[:, :-1]).square().sum()
    entropy = -((log_policy.exp() * log_policy).sum(-1) * valid).sum()
    return policy + value_cost * error - entropy_cost * entropy
