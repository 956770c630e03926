"""Algorithm 1: the order of its steps, who sees what, and the random numbers."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from learning import CONFIGS, SIL, begin, build, compiled_iteration
from probes import ChosenReward, TwoSteps
from tabular import make_rollout

from self_imitation.algorithm import iteration
from self_imitation.algorithm.a2c import A2CConfig
from self_imitation.algorithm.components import Bonus, Exploration, Learner
from self_imitation.algorithm.iteration import Policy
from self_imitation.algorithm.normalisation import Moments, NormaliserState
from self_imitation.algorithm.vtrace import VTrace
from self_imitation.exploration.counts import CountConfig
from self_imitation.networks.distributions import Categorical
from self_imitation.settings import NormaliseConfig
from self_imitation.types import TrainState

TWO_STEPS = TwoSteps()
BOTH = NormaliseConfig(observations=True, rewards=True)
KEEP_ALL = dataclasses.replace(SIL, keep="all", learning_starts=0, gamma=0.9)


def assert_same(one, other):
    assert jax.tree.structure(one) == jax.tree.structure(other)
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        if jnp.issubdtype(a.dtype, jax.dtypes.prng_key):
            a, b = jax.random.key_data(a), jax.random.key_data(b)
        np.testing.assert_array_equal(a, b)


NAMES = ("a2c", "ppo+sil+exp", "vtrace+sil+rnd+exp", "acper+sil")


@pytest.fixture(scope="module", params=NAMES)
def agent(request):
    """Name, agent on TwoSteps, and its compiled iteration."""
    sil = dataclasses.replace(KEEP_ALL, batch_size=8, updates=2)
    built = build(TWO_STEPS, request.param, sil=sil, normalise=BOTH if "ppo" in request.param else None)
    return request.param, built, compiled_iteration(TWO_STEPS, built)


def test_each_agent_has_the_parts_that_its_name_says(agent):
    name, built, one_iteration = agent
    start = begin(TWO_STEPS, built)
    after, rollout, metrics = one_iteration(start)
    state = after.agent
    assert rollout.reward.shape == (4, 8)
    assert all(np.isfinite(float(value)) for value in metrics.values())
    assert {"loss", "policy_loss", "value_loss", "entropy"} <= set(metrics)
    assert ("bonus" in metrics) == ("exp" in name)
    assert ("rnd_bonus" in metrics) == ("rnd" in name)
    assert ("sil_loss" in metrics) == ("sil_kl" in metrics) == (state.buffer is not None) == ("sil" in name)
    assert set(state.components) == {name.partition("+")[0], *[part for part in ("exp", "rnd") if part in name]}
    changed = zip(*map(jax.tree.leaves, (start.agent.train, state.train)), strict=True)
    assert any((a != b).any() for a, b in changed)
    if "sil" in name:  # two whole episodes in each of eight environments
        assert metrics["memory_size"] == state.buffer.size == 32
        # raw, also where PPO learns from normalised rewards
        assert set(np.unique(state.buffer.observation[:32])) == {0.0, 1.0}
        np.testing.assert_allclose(np.unique(state.buffer.returns[:32]), [0.9, 1.0], rtol=1e-6)
    if "exp" in name:
        assert state.components["exp"].sum() == 32
    assert (state.learner_buffer is not None) == ("replay_loss" in metrics) == ("acper" in name)
    if "acper" in name:
        assert metrics["replay_size"] == state.learner_buffer.size == 32
        assert set(np.unique(state.learner_buffer.extras["reward"][:32])) == {0.0, 1.0}


def test_a_seed_determines_every_bit(agent):
    _, built, one_iteration = agent

    def run(seed):
        training = begin(TWO_STEPS, built, seed)
        for _ in range(2):
            training, rollout, metrics = one_iteration(training)
        return training, rollout, metrics

    first = run(3)
    assert_same(first, run(3))
    assert (first[1].action != run(4)[1].action).any()


def test_no_random_number_is_used_twice(agent):
    _, built, one_iteration = agent
    training, keys, actions = begin(TWO_STEPS, built), [], []
    for _ in range(3):
        training, rollout, _ = one_iteration(training)
        keys.append(tuple(jax.random.key_data(training.agent.key).tolist()))
        actions.append(np.asarray(rollout.action))
    assert len(set(keys)) == 3
    # the policy is still nearly even: about half of the actions differ from those of another rollout
    assert np.mean(actions[0] != actions[1]) > 0.2
    assert np.mean(actions[1] != actions[2]) > 0.2


class Marked(Learner):
    """Adds the mean bonus to the value of every state, reports what it was given, and counts its updates."""

    Config = A2CConfig

    def init(self, key, spec, params):
        return jnp.float32(0)

    def update(self, actor_critic, optimiser, state, train_state, rollout, exploration, key):
        bonus = exploration.reward.mean()
        params = eqx.tree_at(lambda p: p.value_head.bias, train_state.params, replace_fn=lambda b: b + bonus)
        first, second = jax.random.key_data(key).astype(jnp.float32)
        given = {"bonus_given": bonus, "reward_given": rollout.reward.mean(), "key_0": first, "key_1": second}
        return state + 1, TrainState(params, train_state.optimiser_state), {**given, "updates": state + 1}


class Growing(Bonus):
    """The bonus is 0 in the first iteration, 100 in the second, and so on; half of it comes as an advantage too."""

    Config = CountConfig

    def init(self, key, num_envs):
        return jnp.float32(0)

    def update(self, state, rollout, key):
        bonus = jnp.full_like(rollout.reward, state)
        return state + 100, Exploration(bonus, bonus / 2), {"bonus": state}


@pytest.fixture(scope="module")
def marked():
    learner, bonus = Marked(CONFIGS["a2c"], False), Growing(CountConfig(), TWO_STEPS.spec)
    built = build(TWO_STEPS, "a2c+sil", sil=KEEP_ALL, learner=learner, bonuses={"growing": bonus})
    one_iteration = compiled_iteration(TWO_STEPS, built)
    start = begin(TWO_STEPS, built)
    first = one_iteration(start)
    return built, start, first, one_iteration(first[0])


def test_episodes_are_stored_and_imitated_in_the_iteration_in_which_they_end(marked):
    _, _, (first, _, metrics), _ = marked
    assert first.agent.buffer.size == metrics["memory_size"] == 32  # 8 environments, 2 episodes each
    assert metrics["sil_imitated"] > 0


def test_the_learner_sees_the_bonus_beside_the_raw_reward(marked):
    """TwoSteps pays 1 at every second step."""
    _, _, first, second = marked
    for (_, _, metrics), bonus in ((first, 0.0), (second, 100.0)):
        assert (metrics["bonus_given"], metrics["bonus"], metrics["reward_given"]) == (bonus, bonus, 0.5)


def test_the_bonus_never_reaches_the_replay_buffer(marked):
    *_, (second, _, _) = marked
    assert second.agent.buffer.size == 64
    np.testing.assert_allclose(np.unique(second.agent.buffer.returns[:64]), [0.9, 1.0], rtol=1e-6)


def test_self_imitation_sees_the_updated_value(marked):
    """After the second update V is near 100: no return beats it, and self-imitation changes nothing."""
    _, _, (first, _, _), (second, _, metrics) = marked
    assert metrics["sil_imitated"] == 0
    updated = eqx.tree_at(lambda p: p.value_head.bias, first.agent.train.params, replace_fn=lambda b: b + 100)
    assert_same(second.agent.train.params, updated)


def test_components_keep_their_state_under_their_name(marked):
    _, start, (first, _, _), (second, _, metrics) = marked
    states = [{name: float(s) for name, s in t.agent.components.items()} for t in (start, first, second)]
    assert states == [
        {"a2c": 0.0, "growing": 0.0},
        {"a2c": 1.0, "growing": 100.0},
        {"a2c": 2.0, "growing": 200.0},
    ]
    assert metrics["updates"] == 2.0


def test_the_learner_gets_random_numbers_of_its_own(marked):
    _, start, (first, _, one), (second, _, two) = marked
    given = [(float(m["key_0"]), float(m["key_1"])) for m in (one, two)]
    kept = [tuple(jax.random.key_data(t.agent.key).astype(jnp.float32).tolist()) for t in (start, first, second)]
    assert len({*given, *kept}) == 5


ROLLOUT = make_rollout(np.zeros((4, 8, 1), np.float32), np.ones((4, 8)), np.zeros((8, 1), np.float32))


@pytest.fixture(scope="module")
def plain():
    """A2C without any other part, and its initial state."""
    built = build(TWO_STEPS)
    return built, begin(TWO_STEPS, built).agent


def test_bonuses_add_up(plain):
    built, state = plain
    bonuses = {name: Growing(CountConfig(), TWO_STEPS.spec) for name in ("one", "two")}
    state = dataclasses.replace(state, components={"a2c": None, "one": jnp.float32(3), "two": jnp.float32(5)})
    state, exploration, _ = iteration.explore(dataclasses.replace(built, bonuses=bonuses), state, ROLLOUT)
    assert set(np.unique(exploration.reward)) == {8.0}
    assert set(np.unique(exploration.advantage)) == {4.0}
    assert {name: float(state.components[name]) for name in ("one", "two")} == {"one": 103.0, "two": 105.0}


def test_without_a_bonus_nothing_is_added(plain):
    built, state = plain
    after, exploration, metrics = iteration.explore(built, state, ROLLOUT)
    assert (exploration.reward, exploration.advantage, metrics) == (None, None, {})
    assert_same(after, state)


def test_sums_of_explorations_skip_what_is_missing():
    one, two = Exploration(reward=jnp.ones((1, 1))), Exploration(advantage=jnp.ones((1, 1)))
    total = Exploration() + one + two + one
    assert (float(total.reward[0, 0]), float(total.advantage[0, 0])) == (2.0, 1.0)


def test_agents_without_self_imitation_have_nothing_to_imitate(plain):
    built, state = plain
    assert iteration.imitate(built, state) == (state, {})
    assert iteration.remember(built, state, ROLLOUT) is state


def test_any_number_of_self_imitation_updates_can_be_made(marked):
    """The runtime may spread the M updates over the steps of the next rollout."""
    built, _, (first, _, _), _ = marked
    imitate_once = jax.jit(lambda state: iteration.imitate(built, state, updates=1))
    state, keys = first.agent, set()
    for _ in range(2):
        before = state
        state, metrics = imitate_once(state)
        assert metrics["sil_imitated"] > 0
        assert (state.train.params.policy_head.bias != before.train.params.policy_head.bias).any()
        keys.add(tuple(jax.random.key_data(state.key).tolist()))
    assert len(keys) == 2


class Recorder(Learner):
    """Learns nothing and reports what it was given."""

    Config = A2CConfig

    def update(self, actor_critic, optimiser, state, train_state, rollout, exploration, key):
        observation = rollout.observation
        given = {"reward": rollout.reward.max(), "mean": observation.mean(), "deviation": observation.std()}
        return state, train_state, {**given, "last": rollout.last_observation.mean()}


def zero_value(params, observation):
    return Categorical(jnp.zeros((len(observation), 2))), jnp.zeros(len(observation))


def test_statistics_take_in_a_rollout_before_anything_is_learnt_and_the_buffer_stays_raw():
    """TwoSteps shows 0 and 1 in turn and pays 1 at every second step: mean and deviation are 1/2, the discounted sums
    are 0 and 1, and their deviation is 1/2. So 0 is seen as -1 and the reward as 2. Stored are 0, 1, 0.9 and 1. Those
    returns, divided by 1/2, beat a value of 0 by 1.8 and 2, on average by 1.9.
    """
    sil = dataclasses.replace(KEEP_ALL, updates=1, max_advantage=None, importance_exponent=0.0)
    options = {"normalise": BOTH, "learner": Recorder(CONFIGS["a2c"], False), "actor_critic": zero_value}
    built = build(TWO_STEPS, "a2c+sil", sil=sil, **options)
    one_iteration = compiled_iteration(TWO_STEPS, built)
    training = begin(TWO_STEPS, built)
    for turn in range(1, 4):
        training, rollout, metrics = one_iteration(training)
        assert set(np.unique(rollout.observation)) == set(np.unique(rollout.reward)) == {0.0, 1.0}
        seen = [float(metrics[name]) for name in ("reward", "mean", "deviation", "last")]
        np.testing.assert_allclose(seen, [2.0, 0.0, 1.0, -1.0], atol=1e-5)
        statistics = training.agent.normaliser
        assert float(statistics.observation.count) == float(statistics.sums.count) == turn * 32
        assert float(metrics["sil_advantage"]) == pytest.approx(1.9, abs=0.04)
    buffer = training.agent.buffer
    assert buffer.size == 96
    assert set(np.unique(buffer.observation[:96])) == {0.0, 1.0}
    np.testing.assert_allclose(np.unique(buffer.returns[:96]), [0.9, 1.0], rtol=1e-6)
    assert set(np.unique(buffer.pending.observation)) == set(np.unique(buffer.pending.reward)) == {0.0, 1.0}


def test_acting_uses_normalised_observations():
    """The only observation is 0. Where the mean is -1 it is seen as 1, and where the mean is 1 as -1."""

    def by_sign(params, observation):
        return Categorical(jnp.concatenate([0 * observation, 50 * observation], axis=1)), observation[:, 0]

    built = build(ChosenReward(), normalise=NormaliseConfig(observations=True), actor_critic=by_sign)
    one = jnp.ones(1)
    for mean, expected in ((-one, 1), (one, 0)):
        statistics = NormaliserState(Moments(mean, one, jnp.float32(1.0)), None, jnp.zeros(8), jnp.float32(0.0))
        action, extras = iteration.act(built, Policy(None, statistics), jnp.zeros((8, 1)), jax.random.key(0))
        assert (action == expected).all()
        assert extras == {}


def test_acting_records_what_the_learner_asks_for(plain):
    built, state = plain
    built = dataclasses.replace(built, learner=VTrace(CONFIGS["vtrace"], False))
    observation = jnp.zeros((8, 1))
    action, extras = iteration.act(built, state.policy, observation, jax.random.key(0))
    distribution, _ = built.actor_critic(state.train.params, observation)
    np.testing.assert_allclose(extras["log_prob"], distribution.log_prob(action), rtol=1e-6)


@pytest.mark.parametrize("own", [False, True])
def test_self_imitation_may_have_an_optimiser_of_its_own(own):
    """Then its steps leave the statistics of the learner's optimiser alone, and the learner's leave its own alone."""
    optimiser = optax.adam(0.01) if own else None
    sil = dataclasses.replace(KEEP_ALL, batch_size=8, updates=2)
    agent = build(TWO_STEPS, "a2c+sil", sil=sil, imitation_optimiser=optimiser)
    trained, _, _ = compiled_iteration(TWO_STEPS, agent)(begin(TWO_STEPS, agent))
    before = trained.agent
    after, _ = jax.jit(lambda state: iteration.imitate(agent, state))(before)
    moved = jax.tree.map(lambda a, b: bool((a != b).any()), before.train, after.train)
    assert any(jax.tree.leaves(moved.params))
    assert any(jax.tree.leaves(moved.optimiser_state)) == (not own)
    if own:
        assert int(after.imitation_optimiser_state[0].count) == int(before.imitation_optimiser_state[0].count) + 2 == 4
    else:
        assert after.imitation_optimiser_state is None
