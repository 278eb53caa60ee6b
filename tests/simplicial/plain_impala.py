"""IMPALA's learner in float64 NumPy, written directly as the paper's sums."""

import numpy as np


def v_trace(log_ratio, discount, reward, value, bootstrap, *, valid=None, bars=(1.0, 1.0, 1.0)):
    """Computes targets and advantages of one trajectory [T] by the double sum of equation 1."""
    steps = len(reward)
    valid = np.ones(steps, bool) if valid is None else valid
    with np.errstate(over="ignore"):
        rho, c, weight = (np.minimum(bar, np.exp(log_ratio)) * valid for bar in bars)
    values = np.append(value, bootstrap)
    targets = values.copy()
    for s in range(steps):
        product = 1.0
        for t in range(s, steps):
            targets[s] += product * rho[t] * (reward[t] + discount[t] * values[t + 1] - values[t])
            product *= discount[t] * c[t]
    advantage = [weight[t] * (reward[t] + discount[t] * targets[t + 1] - values[t]) for t in range(steps)]
    return targets[:-1], np.asarray(advantage)


def log_softmax(logits):
    """Normalises along the last axis."""
    shifted = logits - logits.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


def loss(
    logits, value, trajectories, *, gamma=0.99, entropy_cost=0.005, value_cost=0.5, bars=(1.0, 1.0, 1.0)
):
    """Returns the sums of `simplicial.impala.loss`, and the gradients of their total.

    The gradients are those with respect to logits and values; `trajectories` is a dictionary of arrays
    [B, T, ...].
    """
    logits, value = np.asarray(logits, np.float64), np.asarray(value, np.float64)
    sums = dict.fromkeys(("total", "policy", "value", "entropy", "ratio", "steps"), 0.0)
    by_logits, by_value = np.zeros_like(logits), np.zeros_like(value)
    for b, action in enumerate(trajectories["action"]):
        log_pi, log_mu = log_softmax(logits[b]), log_softmax(np.float64(trajectories["logits"][b]))
        taught = np.arange(len(action) - 1)
        log_ratio = (log_pi - log_mu)[taught, action[:-1]]
        valid = ~trajectories["truncated"][b, :-1]
        discount = gamma * ~trajectories["terminated"][b, :-1]
        reward = np.float64(trajectories["reward"][b, :-1])
        target, advantage = v_trace(
            log_ratio, discount, reward, value[b, :-1], value[b, -1], valid=valid, bars=bars
        )
        for t in taught[valid]:
            pi, chosen = np.exp(log_pi[t]), np.arange(logits.shape[-1]) == action[t]
            entropy = -(pi * log_pi[t]).sum()
            sums["policy"] -= log_pi[t, action[t]] * advantage[t]
            sums["value"] += (target[t] - value[b, t]) ** 2 / 2
            sums["entropy"] += entropy
            sums["ratio"] += min(1.0, np.exp(log_ratio[t]))
            sums["steps"] += 1
            by_logits[b, t] = (pi - chosen) * advantage[t] + entropy_cost * pi * (log_pi[t] + entropy)
            by_value[b, t] = value_cost * (value[b, t] - target[t])
    sums["total"] = sums["policy"] + value_cost * sums["value"] - entropy_cost * sums["entropy"]
    return sums, by_logits, by_value


def rmsprop(params, accumulator, gradient, *, learning_rate=2e-4, max_norm=40.0, decay=0.99, epsilon=0.1):
    """Updates one array by the clip and TensorFlow's RMSProp, whose accumulator starts at 1."""
    gradient = gradient * min(1.0, max_norm / np.sqrt((gradient**2).sum()))
    accumulator = decay * accumulator + (1 - decay) * gradient**2
    return params - learning_rate * gradient / np.sqrt(accumulator + epsilon), accumulator
