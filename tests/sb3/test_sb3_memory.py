"""What the callback remembers: raw steps, returns of whole episodes, in the right order."""

import gymnasium
import numpy as np
import pytest

pytest.importorskip("stable_baselines3")

from gymnasium import spaces
from stable_baselines3 import A2C, PPO
from stable_baselines3.common.callbacks import BaseCallback, CallbackList
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecFrameStack, VecMonitor, VecNormalize
from torch.optim import Adam

from self_imitation.errors import UsageError
from self_imitation.sb3 import SelfImitation
from self_imitation.sb3 import callback as callback_module

pytestmark = [pytest.mark.extras, pytest.mark.filterwarnings("ignore:self-imitation. nothing to imitate")]

SMALL = {"keep": "all", "gamma": 0.5, "buffer_size": 200, "batch_size": 16, "learning_starts": 8}
# Of `Counter`, by (episode, step): copy 0's episodes take 2, 3 and 4 steps, with rewards 100 * episode + 1, 2 ...
# The first ends by termination, the second by a time limit: its returns end there, too.
BY_HAND = {
    (0, 0): 1 + 0.5 * 2,
    (0, 1): 2,
    (1, 0): 101 + 0.5 * 102 + 0.25 * 103,
    (1, 1): 102 + 0.5 * 103,
    (1, 2): 103,
    (2, 0): 201 + 0.5 * 202 + 0.25 * 203 + 0.125 * 204,
}


def counter(num_envs=2):
    """Copies with seeds 0, 1 ...: the model seeds them."""
    return make_vec_env("gymnasium_probes:Counter-v0", n_envs=num_envs)


def a2c(env, **changes):
    return A2C("MlpPolicy", env, **{"n_steps": 4, "seed": 0, "device": "cpu", **changes})


def stored(callback):
    """(seed, episode, step) -> return."""
    arrays = callback.memory.to_arrays()
    keys = [tuple(int(x) for x in row) for row in arrays["observation"]]
    assert len(set(keys)) == len(keys)
    return dict(zip(keys, arrays["returns"].tolist(), strict=True))


def length_of(seed, episode):
    return 2 + (seed + episode) % 3


def return_of(seed, episode, time):
    """A twin of the probe."""
    return sum((100 * episode + k + 1) * 0.5 ** (k - time) for k in range(time, length_of(seed, episode)))


def expected_returns(num_envs, steps):
    """Returns of all episodes that end within so many steps of each copy."""
    found = {}
    for seed in range(num_envs):
        episode = start = 0
        while (end := start + length_of(seed, episode)) <= steps:
            found |= {(seed, episode, time): return_of(seed, episode, time) for time in range(end - start)}
            episode, start = episode + 1, end
    return found


def test_returns_and_ends_of_episodes_are_exact():
    callback = SelfImitation(**SMALL)
    a2c(counter()).learn(48, callback=callback)  # 24 steps of each copy, in 6 rollouts that cut episodes
    found = stored(callback)
    assert found == pytest.approx(expected_returns(2, 24))
    for (episode, step), value in BY_HAND.items():
        assert found[0, episode, step] == pytest.approx(value)


def test_values_at_time_limits_do_not_enter_the_returns():
    """SB3 adds the value of the last observation to the reward there; with these weights, a million."""
    model = a2c(counter())
    model.policy.value_net.bias.data.fill_(1e6)
    callback = SelfImitation(**SMALL)
    model.learn(48, callback=callback)
    assert stored(callback) == pytest.approx(expected_returns(2, 24))


def test_where_rewards_are_costs_time_limits_are_told_from_terminal_states():
    """Each step costs 1: at a time limit, a return goes on with -1 / (1 - 0.5)."""
    env = make_vec_env(
        "gymnasium_probes:Counter-v0",
        n_envs=2,
        wrapper_class=lambda env: gymnasium.wrappers.TransformReward(env, lambda reward: -1.0),
    )
    callback = SelfImitation(**SMALL)
    a2c(env).learn(48, callback=callback)
    found = stored(callback)
    assert found.keys() == expected_returns(2, 24).keys()
    for (seed, episode, time), value in found.items():
        left = length_of(seed, episode) - time
        following = -2.0 if episode % 3 == 1 else 0.0
        assert value == pytest.approx(-sum(0.5**k for k in range(left)) + 0.5**left * following)


def test_learning_goes_on_with_the_same_episodes_in_the_next_call():
    callback, model = SelfImitation(**SMALL), a2c(counter())
    for steps in (8, 16, 24):
        model.learn(steps, callback=callback, reset_num_timesteps=False)
    assert stored(callback) == pytest.approx(expected_returns(2, 24))


@pytest.mark.parametrize("again", [True, False], ids=["learning from step 0 again", "other environments"])
def test_unfinished_episodes_are_dropped_when_the_environments_are_reset(again):
    callback, model = SelfImitation(**SMALL), a2c(counter())
    model.learn(8, callback=callback)  # both copies are in an episode
    model.set_env(model.get_env(), force_reset=not again)
    model.learn(24, callback=callback, reset_num_timesteps=again)
    found = stored(callback)
    assert len(found) > 20
    assert found == pytest.approx({key: return_of(*key) for key in found})


def test_steps_without_the_callback_leave_no_gap_inside_an_episode():
    callback, model = SelfImitation(**SMALL), a2c(counter())
    model.learn(8, callback=callback, reset_num_timesteps=False)
    model.learn(8, reset_num_timesteps=False)
    model.learn(32, callback=callback, reset_num_timesteps=False)
    expected = expected_returns(2, 24)
    found = stored(callback)
    assert 0 < len(found) < len(expected)
    assert found == pytest.approx({key: expected[key] for key in found})


class StopAt(BaseCallback):
    def __init__(self, steps):
        super().__init__()
        self.steps = steps

    def _on_step(self):
        return self.num_timesteps < self.steps


def test_a_training_that_is_stopped_within_a_rollout_keeps_the_memory_exact():
    callback, model = SelfImitation(**SMALL), a2c(counter())
    model.learn(1000, callback=CallbackList([StopAt(20), callback]))
    assert stored(callback) == pytest.approx(expected_returns(2, 8))
    model.learn(16, callback=callback)
    assert stored(callback) == pytest.approx({key: return_of(*key) for key in stored(callback)})


def test_updates_come_after_those_of_the_model(monkeypatch):
    """A2C learns from a rollout, then self-imitation M times; also after the last rollout."""
    order = []
    step = callback_module.loss.gradient_step
    monkeypatch.setattr(callback_module.loss, "gradient_step", lambda *a: order.append("sil") or step(*a))
    model = a2c(counter())
    train = model.train
    model.train = lambda: order.append("a2c") or train()
    model.learn(32, callback=SelfImitation(**SMALL, updates=3))
    assert order == ["a2c", *["a2c", "sil", "sil", "sil"] * 3]  # too little is stored after the first rollout


def test_the_optimiser_takes_a_step_only_when_enough_is_stored():
    model = a2c(counter(), policy_kwargs={"optimizer_class": Adam}, learning_rate=0.0)
    model.learn(32, callback=SelfImitation(**SMALL, updates=3, value="shared"))
    (steps,) = {int(state["step"]) for state in model.policy.optimizer.state.values()}
    assert steps == 4 + 3 * 3


def test_an_optimiser_of_its_own_leaves_the_state_of_the_model_alone():
    model = a2c(counter(), policy_kwargs={"optimizer_class": Adam}, learning_rate=1e-3)
    callback = SelfImitation(**SMALL, updates=3, optimiser="own", learning_rate=2e-3)
    model.learn(32, callback=callback)
    own = callback._optimiser.current()
    assert {int(state["step"]) for state in model.policy.optimizer.state.values()} == {4}
    assert {int(state["step"]) for state in own.state.values()} == {9}
    assert (own.param_groups[0]["lr"], model.policy.optimizer.param_groups[0]["lr"]) == (2e-3, 1e-3)


def test_the_learning_rate_follows_the_schedule_of_the_model():
    model = a2c(counter(), learning_rate=lambda remaining: 0.1 * remaining)
    callback = SelfImitation(**SMALL, optimiser="own")
    model.learn(32, callback=callback)
    rate = model.policy.optimizer.param_groups[0]["lr"]
    assert rate == pytest.approx(0.0)  # of the last update
    assert callback._optimiser.current().param_groups[0]["lr"] == rate


def normalised(clip_reward=10.0, num_envs=2, **changes):
    return VecNormalize(counter(num_envs), clip_reward=clip_reward, gamma=0.5, **changes)


@pytest.mark.parametrize("wrap", [lambda env: env, VecMonitor], ids=["outermost", "inside VecMonitor"])
def test_what_is_stored_is_raw_beside_vec_normalize(wrap):
    callback = SelfImitation(**SMALL)
    a2c(wrap(normalised())).learn(48, callback=callback)
    assert stored(callback) == pytest.approx(expected_returns(2, 24))


@pytest.mark.parametrize("clip_reward", [10.0, 0.7], ids=["never clipped", "clipped"])
@pytest.mark.parametrize("buffer_size", [200, 21], ids=["all stored", "the oldest overwritten"])
def test_sampled_steps_have_the_present_scale(monkeypatch, clip_reward, buffer_size):
    """Observations as the policy sees them now; returns of rewards as the values learn them now, clipping included."""
    seen = []
    step = callback_module.loss.gradient_step
    monkeypatch.setattr(callback_module.loss, "gradient_step", lambda *a: seen.append(a) or step(*a))
    callback, env = SelfImitation(**{**SMALL, "buffer_size": buffer_size}), normalised(clip_reward)
    a2c(env).learn(48, callback=callback)

    def by_hand(seed, episode, time):
        length = length_of(seed, episode)
        rewards = env.normalize_reward(np.array([100.0 * episode + k + 1 for k in range(time, length)]))
        return sum(reward * 0.5**k for k, reward in enumerate(rewards))

    arrays = callback.memory.to_arrays()
    assert len(arrays["returns"]) == (21 if buffer_size == 21 else len(expected_returns(2, 24)))
    returns = callback._normalisation.returns(callback.memory)[: len(arrays["returns"])]
    raw = arrays["observation"]
    np.testing.assert_allclose(returns, [by_hand(*map(int, row)) for row in raw], rtol=1e-4)
    divided = arrays["returns"] / np.sqrt(env.ret_rms.var + env.epsilon)
    assert np.allclose(returns, divided, rtol=1e-4) == (clip_reward == 10.0)

    _, _, observation, _, sampled, weight, *_ = seen[-1]
    pairs = {tuple(np.round(row, 4)): value for row, value in zip(env.normalize_obs(raw), returns, strict=True)}
    for row, value, filled in zip(observation.numpy(), sampled.numpy(), weight.numpy() > 0, strict=True):
        if filled:
            assert pairs[tuple(np.round(row, 4))] == pytest.approx(value, rel=1e-4)


def test_rewards_alone_may_be_normalised():
    callback = SelfImitation(**SMALL)
    a2c(VecFrameStack(normalised(norm_obs=False), 1)).learn(48, callback=callback)
    assert stored(callback) == pytest.approx(expected_returns(2, 24))
    assert callback._normalisation.returns(callback.memory).max() < 10


def test_a_wrapper_around_vec_normalize_that_changes_observations_is_refused():
    with pytest.raises(UsageError, match="put VecNormalize around VecFrameStack"):
        a2c(VecFrameStack(normalised(), 2)).learn(8, callback=SelfImitation())


class Actions(gymnasium.Env):
    """The observation is the previous action, as the environment received it. Four steps; every step pays 1."""

    def __init__(self, action_space):
        self.action_space = action_space
        size = int(np.prod(action_space.shape or (1,)))
        self.observation_space = spaces.Box(-np.inf, np.inf, (size + 1,), np.float32)

    def _observe(self, action):
        return np.array([self.time, *np.reshape(action, -1)], np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return self._observe(np.zeros(self.observation_space.shape[0] - 1)), {}

    def step(self, action):
        self.time += 1
        return self._observe(action), 1.0, self.time == 4, False, {}


ACTION_SPACES = {
    "Discrete": spaces.Discrete(5),
    "MultiDiscrete": spaces.MultiDiscrete([3, 4]),
    "MultiBinary": spaces.MultiBinary(3),
    "Box": spaces.Box(-0.5, 0.5, (2,), np.float32),
    "Box of two axes": spaces.Box(-0.5, 0.5, (2, 3), np.float32),
}


@pytest.mark.parametrize("kind", ACTION_SPACES)
def test_actions_are_stored_with_the_step_that_chose_them_as_sampled(kind):
    space = ACTION_SPACES[kind]
    env = make_vec_env(lambda: Actions(space), n_envs=2)
    callback = SelfImitation(**SMALL)
    model = PPO("MlpPolicy", env, n_steps=8, batch_size=16, n_epochs=1, seed=0, device="cpu")
    model.learn(64, callback=callback)
    arrays = callback.memory.to_arrays()
    action = arrays["action"].reshape(-1, 4, int(np.prod(space.shape or (1,))))  # whole episodes, one after the other
    received = arrays["observation"].reshape(-1, 4, action.shape[2] + 1)
    assert (received[:, :, 0] == np.arange(4)).all()
    sent = np.clip(action, -0.5, 0.5) if isinstance(space, spaces.Box) else action
    np.testing.assert_array_equal(received[:, 1:, 1:], sent[:, :-1])
    assert not isinstance(space, spaces.Box) or np.abs(action).max() > 0.5
    assert model.logger.name_to_value["sil/buffer_size"] == 64
