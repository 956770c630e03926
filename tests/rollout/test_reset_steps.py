"""Environments that reset in the step after an end, as the engines do: reset steps are never used for training."""

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from probes import RandomStart, TwoSteps
from rollout_probes import ResetsInNextStep, collector_with

from self_imitation.algorithm import iteration
from self_imitation.algorithm.returns import n_step_returns
from self_imitation.config import resolve
from self_imitation.environments.batched import PureJax
from self_imitation.replay import buffer as replay
from self_imitation.rollout.in_program import begin
from self_imitation.settings import SelfImitationConfig
from self_imitation.training import agents
from self_imitation.types import Discrete, Rollout, Spec

KEYS = jax.random.split(jax.random.key(0), 1)
N, STEPS = 2, 9


def by_observation(agent, policy, observation, key):
    return (observation[:, 0] > 0.5).astype(jnp.int32), {}


@pytest.fixture(scope="module")
def both():
    """The rollouts of one seed in the two semantics; episodes take 2 steps."""
    found = []
    for environment in (PureJax(TwoSteps(), N), ResetsInNextStep(TwoSteps(), N)):
        collector, policies = collector_with(environment, by_observation, seeds=1)
        collect = jax.jit(partial(collector.collect, policies, steps=STEPS))
        _, rollout = collect(begin(environment, KEYS, N), key=KEYS)
        found.append(jax.tree.map(lambda leaf: leaf[0], rollout))
    return found


def test_the_step_after_an_end_is_a_reset_step(both):
    assert both[0].valid is None
    assert both[1].valid[:, 0].tolist() == [True, True, False] * 3
    assert both[1].ended[:, 0].tolist() == [False, True, False] * 3
    assert not both[1].reward[~both[1].valid].any()


def test_valid_rows_are_those_of_environments_that_reset_within_the_step(both):
    same_step, next_step = both
    valid = np.asarray(next_step.valid[:, 0])
    for name in ("observation", "action", "reward", "terminated", "truncated", "episode_return", "episode_length"):
        found = np.asarray(getattr(next_step, name))[valid]
        np.testing.assert_array_equal(found, np.asarray(getattr(same_step, name))[: valid.sum()], err_msg=name)


def test_the_row_after_an_end_shows_the_state_that_was_reached(both):
    """Bootstrapping at a time limit needs it."""
    same_step, next_step = both
    ended = np.asarray(next_step.ended[:, 0])
    reached = np.asarray(next_step.observation)[1:][ended[:-1]]
    expected = np.asarray(same_step.next_observation)[np.asarray(same_step.ended[:, 0])]
    np.testing.assert_array_equal(reached[:2], expected[:2])


def test_returns_of_valid_rows_are_the_same(both):
    same_step, next_step = both
    valid, zeros = np.asarray(next_step.valid[:, 0]), jnp.zeros(N)
    expected, found = (
        np.asarray(n_step_returns(rollout.reward, rollout.ended, jnp.zeros((STEPS, N)), zeros, 0.9))
        for rollout in (same_step, next_step)
    )
    np.testing.assert_allclose(found[valid], expected[: valid.sum()])


def test_the_replay_buffer_holds_the_same_episodes(both):
    config = SelfImitationConfig(buffer_size=40, batch_size=4, learning_starts=0, keep="all")
    sizes, contents = [], []
    for rollout, steps in zip(both, (6, 9), strict=True):  # three episodes each
        part = jax.tree.map(lambda leaf, t=steps: leaf[:t] if leaf.shape[:1] == (STEPS,) else leaf, rollout)
        part = eqx.tree_at(lambda r: r.next_observation, part, None, is_leaf=lambda x: x is None)
        buffer = replay.insert(replay.create(part, config, 4), part, config)
        sizes.append(int(buffer.size))
        stored = np.concatenate([buffer.observation[:, 0], buffer.returns]).reshape(2, -1)[:, : sizes[-1]]
        contents.append(sorted(map(tuple, stored.T.tolist())))
    assert sizes == [12, 12]
    assert contents[0] == contents[1]


SPEC = Spec((3,), Discrete(2), 20)


def masked_rollout(seed=0):
    """6 steps of 4 environments with numbers at random; the steps after an end are reset steps."""
    generator, shape = np.random.default_rng(seed), (6, 4)
    ended = np.zeros(shape, bool)
    ended[1, 0] = ended[3, 1] = ended[4, 2] = True
    valid = np.ones(shape, bool)
    valid[2, 0] = valid[4, 1] = valid[5, 2] = False
    length = np.array([[1, 1, 1, 1], [2, 2, 2, 2], [0, 3, 3, 3], [1, 4, 4, 4], [2, 0, 5, 5], [3, 1, 0, 6]])
    return Rollout(
        observation=jnp.asarray(generator.normal(size=(*shape, 3)), jnp.float32),
        action=jnp.asarray(generator.integers(2, size=shape)),
        reward=jnp.asarray(np.where(valid, generator.normal(size=shape), 0), jnp.float32),
        terminated=jnp.asarray(ended),
        truncated=jnp.zeros(shape, bool),
        valid=jnp.asarray(valid),
        next_observation=None,
        last_observation=jnp.asarray(generator.normal(size=(4, 3)), jnp.float32),
        episode_return=jnp.zeros(shape),
        episode_length=jnp.asarray(length),
        extras={"log_prob": jnp.full(shape, -0.7)},
    )


@pytest.mark.parametrize("agent", ["a2c+sil+rnd", "ppo", "vtrace"])
def test_garbage_in_reset_steps_changes_nothing(agent):
    """Actions, rewards, extras and observations of reset steps: the update is the same to the last bit.

    A bonus may look at their observations, which are the states that the steps before reached.
    """
    settings = {
        "agent": agent,
        "num_envs": 4,
        "num_steps": 6,
        "network.hidden": (8,),
        "sil.buffer_size": 50,
        "sil.batch_size": 8,
        "sil.learning_starts": 1,
        "sil.updates": 1,
        "normalise.observations": True,
        "normalise.rewards": True,
    }
    if agent.startswith("ppo"):
        settings |= {"ppo.num_minibatches": 2, "ppo.update_epochs": 1}
    config = resolve("gym:Any-v0", "authors", settings)
    built = agents.build(config, SPEC)
    params = agents.initial_params(config, built, 0)
    components = agents.initial_components(built, params, 0)
    clean = masked_rollout()
    value = agents.initial_value(config, built, 0)
    state = agents.initial_state(built, params, value, components, jnp.uint32(0), clean)
    reset = ~clean.valid

    def spoil(leaf, garbage):
        return jnp.where(reset.reshape(*reset.shape, *(1,) * (leaf.ndim - 2)), jnp.asarray(garbage, leaf.dtype), leaf)

    spoiled = eqx.tree_at(
        lambda r: (r.observation, r.action, r.reward, r.extras, r.episode_return),
        clean,
        (
            clean.observation if built.bonuses else spoil(clean.observation, 1e3),
            spoil(clean.action, 1),
            spoil(clean.reward, 55.0),
            {"log_prob": spoil(clean.extras["log_prob"], 3.0)},
            spoil(clean.episode_return, 77.0),
        ),
    )
    update = jax.jit(partial(iteration.update, built))
    (expected, metrics), (found, other_metrics) = update(state, clean), update(state, spoiled)
    assert metrics.keys() == other_metrics.keys()
    for name in metrics:
        np.testing.assert_array_equal(metrics[name], other_metrics[name], err_msg=name)
    compared = (expected.train, expected.normaliser, expected.components)
    assert eqx.tree_equal(compared, (found.train, found.normaliser, found.components))
    if built.self_imitation:
        assert int(expected.buffer.size) == int(found.buffer.size) > 0
    assert not eqx.tree_equal(expected.train.params, params), "it learnt something"


def test_new_episodes_begin_with_a_random_state_of_their_own():
    environment = ResetsInNextStep(RandomStart(), N)
    collector, policies = collector_with(environment, by_observation, seeds=1)
    _, rollout = jax.jit(partial(collector.collect, policies, steps=9))(begin(environment, KEYS, N), key=KEYS)
    first = np.asarray(rollout.observation[0, :, :, 0])[np.asarray(rollout.episode_length[0]) == 1]
    assert len(np.unique(first)) == len(first) == 6
