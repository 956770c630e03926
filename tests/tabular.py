"""Rollouts written down by hand, and learners that update tables: each state has a row of its own, so what is learnt in
one state changes no other.
"""

import dataclasses
from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import optax

from self_imitation.algorithm.components import Exploration
from self_imitation.networks.distributions import Categorical
from self_imitation.types import Rollout, TrainState

SGD = optax.sgd(1.0)
"""Plain gradient steps of length 1, so that parameters move by exactly minus the gradient."""


def tabular(params, observation):
    """An actor-critic for one-hot observations: a row of logits and a value for each state."""
    return Categorical(observation @ params["logits"]), observation @ params["value"]


def make_rollout(
    observation,
    reward,
    last_observation,
    next_observation=None,
    action=None,
    terminated=None,
    truncated=None,
    valid=None,
    extras=None,
):
    """Columns [T, N, ...]; nothing ends and all actions are 0 unless given."""
    reward = np.asarray(reward, np.float32)

    def given(column, dtype):
        return jnp.asarray(np.zeros(reward.shape, dtype) if column is None else np.asarray(column, dtype))

    return Rollout(
        observation=jax.tree.map(jnp.asarray, observation),
        action=given(action, np.int32),
        reward=jnp.asarray(reward),
        terminated=given(terminated, bool),
        truncated=given(truncated, bool),
        valid=None if valid is None else jnp.asarray(np.asarray(valid, bool)),
        next_observation=None if next_observation is None else jax.tree.map(jnp.asarray, next_observation),
        last_observation=jax.tree.map(jnp.asarray, last_observation),
        episode_return=jnp.asarray(reward),
        episode_length=jnp.asarray(np.ones(reward.shape, np.int32)),
        extras={name: jnp.asarray(extra) for name, extra in (extras or {}).items()},
    )


def one_hot(state, states):
    return np.eye(states, dtype=np.float32)[np.asarray(state)]


def state_rollout(state, reward, last_state, next_state=None, states=4, **columns):
    """A rollout of one-hot states, given by their numbers."""
    following = None if next_state is None else one_hot(next_state, states)
    return make_rollout(one_hot(state, states), reward, one_hot(last_state, states), following, **columns)


EXTREME = {"f": 1e6, "i": 1, "u": 255, "b": False}


def with_reset_step(rollout, after):
    """The same rollout with a reset step of extreme numbers after row `after`, in all environments.

    The observation of that row is the one that the step before it reached, as environments show it that reset on the
    next step; `next_observation` is left out, for it can be read off the following rows.
    """

    def insert(column, row=None):
        column = np.asarray(column)
        row = np.full_like(column[:1], EXTREME[column.dtype.kind]) if row is None else np.asarray(row)[None]
        return jnp.asarray(np.concatenate([column[: after + 1], row, column[after + 1 :]]))

    reached = jax.tree.map(lambda column: column[after], rollout.next_observation)
    columns = {f.name: getattr(rollout, f.name) for f in dataclasses.fields(rollout)}
    kept = {name: columns.pop(name) for name in ("last_observation", "observation", "next_observation", "valid")}
    valid = np.ones((rollout.reward.shape[0] + 1, rollout.reward.shape[1]), bool)
    valid[after + 1] = False
    return Rollout(
        **jax.tree.map(insert, columns),
        observation=jax.tree.map(insert, kept["observation"], reached),
        next_observation=None,
        last_observation=kept["last_observation"],
        valid=jnp.asarray(valid),
    )


@cache
def compiled_update(learner, config, bootstrap_time_limits):
    return jax.jit(partial(learner(config, bootstrap_time_limits).update, tabular, SGD, None))


def updated_tables(learner, config, rollout, value, logits=None, bootstrap=False, reward=None, advantage=None, key=0):
    """Tables and metrics after one update from these values, and from equal probabilities unless `logits` are given.

    `reward`, `advantage`: of an exploration bonus.
    """
    value = jnp.asarray(np.asarray(value, np.float32))
    logits = np.zeros((len(value), 2), np.float32) if logits is None else np.asarray(logits, np.float32)
    params = {"logits": jnp.asarray(logits), "value": value}
    bonus = (None if part is None else jnp.asarray(np.asarray(part, np.float32)) for part in (reward, advantage))
    update = compiled_update(learner, config, bootstrap)
    train_state = TrainState(params, SGD.init(params))
    state, train_state, metrics = update(train_state, rollout, Exploration(*bonus), jax.random.key(key))
    assert state is None
    after = {name: np.asarray(table) for name, table in train_state.params.items()}
    return after, {name: float(metric) for name, metric in metrics.items()}
