"""Rollouts inside the compiled program against environments stepped from Python: K = 2 seeds of N = 3 environments."""

from functools import partial

import envpool
import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode
from key_door_treasure_twin import LIMIT, first_place, move, observed

from self_imitation.algorithm.iteration import Policy
from self_imitation.config import resolve
from self_imitation.environments import atari
from self_imitation.environments.batched import PureJax
from self_imitation.environments.gymnasium import spaces as gymnasium_spaces
from self_imitation.environments.gymnasium.make import make_env
from self_imitation.environments.gymnasium.vector import make_emulators
from self_imitation.environments.jax.key_door_treasure import KeyDoorTreasure
from self_imitation.environments.registry import find
from self_imitation.environments.xla import ale
from self_imitation.environments.xla import envpool as envpool_engine
from self_imitation.rollout.in_program import Collector, begin
from self_imitation.training import agents, backends
from self_imitation.types import Discrete

SEEDS = np.array([[3, 4, 5], [16, 17, 18]])
K, N = SEEDS.shape
KEYS = jax.random.split(jax.random.key(0), K)
NO_POLICY = Policy(jnp.zeros(K), None)


def random_actions(agent, policy, observation, key):
    """A policy that samples uniformly, or a normal distribution that often exceeds the bounds."""
    if isinstance(agent.spec.actions, Discrete):
        return jax.random.randint(key, (N,), 0, agent.spec.actions.count), {}
    return 1.5 * jax.random.normal(key, (N, *agent.spec.action_shape)), {}


def collector_in(environment, **options):
    agent = agents.build(resolve("gym:Any-v0", "authors", {"agent": "a2c", "num_envs": N}), environment.spec)
    return Collector(agent, environment, **{"act": random_actions, **options})


def collect(environment, *steps):
    """Consecutive rollouts as one, [K, T, N, ...]; also what the policy sees after it."""
    collector, collection, rollouts = collector_in(environment), begin(environment, KEYS, N), []
    run = jax.jit(collector.collect, static_argnums=3)
    for number, length in enumerate(steps):
        keys = jax.vmap(lambda key, n=number: jax.random.fold_in(key, n))(KEYS)
        collection, rollout = run(NO_POLICY, collection, keys, length)
        np.testing.assert_array_equal(rollout.last_observation, collection.observation)
        rollouts.append(rollout)
    environment.close()
    last = rollouts[-1].last_observation
    rows = [_columns(rollout) for rollout in rollouts]
    return {name: _join([row[name] for row in rows]) for name in rows[0]}, np.asarray(last)


def _columns(rollout):
    return {name: value for name, value in vars(rollout).items() if name not in ("last_observation", "extras")}


def _join(parts):
    return None if parts[0] is None else np.concatenate([np.asarray(part) for part in parts], axis=1)


@pytest.fixture(scope="module", params=[False, True], ids=["plain", "apples"])
def grid_world(request):
    return request.param, *collect(PureJax(KeyDoorTreasure(request.param), N), 70, 50)


def test_grid_worlds_take_the_steps_of_the_twin(grid_world):
    """120 steps, so two time limits; the environment resets within the step that ends an episode."""
    apples, rollout, last = grid_world
    assert rollout["valid"] is None
    for k, n in np.ndindex(K, N):
        place, time, total = first_place(apples), 0, 0.0
        for t in range(120):
            assert rollout["observation"][k, t, n].tolist() == observed(place)
            place, reward, terminated = move(place, int(rollout["action"][k, t, n]))
            time, total = time + 1, total + reward
            truncated = time == LIMIT and not terminated
            assert rollout["next_observation"][k, t, n].tolist() == observed(place)
            found = (rollout[name][k, t, n].item() for name in ("reward", "terminated", "truncated"))
            assert tuple(found) == (reward, terminated, truncated)
            assert (rollout["episode_return"][k, t, n], rollout["episode_length"][k, t, n]) == (total, time)
            if terminated or truncated:
                place, time, total = first_place(apples), 0, 0.0
        assert last[k, n].tolist() == observed(place)
    assert rollout["truncated"].any()
    assert rollout["reward"].any() or not apples


def test_seeds_and_environments_use_random_numbers_of_their_own(grid_world):
    _, rollout, _ = grid_world
    assert len({rollout["action"][k, :, n].tobytes() for k, n in np.ndindex(K, N)}) == K * N


def replay(rollout, last, first, step):
    """Make the rollout's actions in an engine stepped from Python, and compare every field.

    `step` returns the observation, reward, terminated and truncated of all environments, [K * N, ...]; the step after
    an end only resets.
    """
    flat = {name: None if x is None else np.concatenate(x, axis=1) for name, x in rollout.items()}
    observation, ended = first, np.zeros(K * N, bool)
    total, length = np.zeros(K * N, np.float32), np.zeros(K * N, int)
    assert flat["next_observation"] is None, "it is the observation of the next row"
    for t, action in enumerate(flat["action"]):
        np.testing.assert_array_equal(flat["observation"][t], observation, err_msg=f"observation {t}")
        observation, reward, terminated, truncated = step(action, resets=ended)
        valid = ~ended
        np.testing.assert_array_equal(flat["valid"][t], valid)
        np.testing.assert_array_equal(flat["reward"][t], np.where(valid, reward.astype(np.float32), 0))
        np.testing.assert_array_equal(flat["terminated"][t], terminated & valid)
        np.testing.assert_array_equal(flat["truncated"][t], truncated & valid)
        total, length = total + flat["reward"][t], length + valid
        np.testing.assert_array_equal(flat["episode_return"][t], total)
        np.testing.assert_array_equal(flat["episode_length"][t], length)
        ended = (terminated | truncated) & valid
        total, length = total * ~ended, length * ~ended
    np.testing.assert_array_equal(last.reshape(K * N, *last.shape[2:]), observation)


def test_envpool_takes_the_steps_of_a_pool_stepped_from_python():
    rollout, last = collect(envpool_engine.make("Hopper-v5", SEEDS, 2, "Hopper"), 30, 40)
    pool = envpool.make("Hopper-v5", env_type="gymnasium", num_envs=K * N, seed=SEEDS.reshape(-1).tolist())

    def step(action, resets):
        observation, reward, terminated, truncated, info = pool.step(np.clip(action, -1, 1).astype(np.float64))
        assert info["env_id"].tolist() == list(range(K * N))
        np.testing.assert_array_equal(info["elapsed_step"] == 0, resets)
        heights = observation[resets, 0]
        np.testing.assert_allclose(heights, 1.25, atol=0.0051, err_msg="the height at which every episode begins")
        return observation.astype(np.float32), reward, terminated, truncated

    replay(rollout, last, pool.reset()[0].astype(np.float32), step)
    assert np.abs(rollout["action"]).max() > 1, "stored as the policy chose it"
    assert rollout["terminated"].sum() >= K * N
    assert not rollout["truncated"].any()


def test_minigrid_by_envpool_is_minigrid():
    """Where every episode begins in the same state, the same actions lead to the same observations and rewards."""
    engine = envpool_engine.make("MiniGrid-Empty-5x5-v0", SEEDS, 2, "MiniGrid")
    assert engine.spaces.notes == ("observation 'mission' is text and is ignored",)
    rollout, _ = collect(engine, 150)
    env = make_env("MiniGrid-Empty-5x5-v0").env
    spaces = gymnasium_spaces.describe(env.observation_space, env.action_space, None, "MiniGrid")
    assert spaces.spec.observation_shape == engine.spec.observation_shape
    for seed, copy in np.ndindex(K, N):
        raw, ends, (observation, action, reward, valid) = env.reset()[0], 0, own(rollout, seed, copy)
        for t in range(150):
            batch = {name: np.asarray(part)[None] for name, part in raw.items() if name != "mission"}
            np.testing.assert_array_equal(observation[t], spaces.observation(batch)[0])
            if not valid[t]:
                raw = env.reset()[0]
                continue
            raw, paid, terminated, truncated, _ = env.step(int(action[t]))
            assert reward[t] == pytest.approx(paid, rel=1e-6), "EnvPool computes it in float32"
            ends += terminated or truncated
        assert ends >= 1


def own(rollout, seed, copy):
    return [rollout[name][seed, :, copy] for name in ("observation", "action", "reward", "valid")]


def test_a_hopper_paid_for_distance():
    """EnvPool's options make the task that Gymnasium has under its own id."""
    entry = find("hopper-distance")
    pool = envpool.make(
        entry.envpool_id, env_type="gymnasium", num_envs=1, seed=3, num_threads=1, **entry.envpool_options
    )
    pool.reset()
    twin = gymnasium.make(entry.gym_id)
    twin.reset(seed=0)
    rng, reached, paid, place, twin_paid = np.random.default_rng(0), 0.0, 0.0, twin.unwrapped.data.qpos[0], 0.0
    for _ in range(8):
        action = rng.uniform(-1, 1, (1, 3))
        _, reward, _, _, info = pool.step(action)
        paid, reached = paid + reward[0], info["x_position"][0]
        twin_paid += twin.step(action[0])[1]
    begin = reached - paid
    assert abs(begin) <= 0.0051, "hoppers begin within 5 mm of 0, so the rest was paid for"
    assert twin_paid == pytest.approx(twin.unwrapped.data.qpos[0] - place, abs=1e-9)


def test_envpool_tells_time_limits_from_terminal_states():
    """A pendulum never terminates: 200 steps, a time limit, and one step that resets."""
    rollout, _ = collect(envpool_engine.make("Pendulum-v1", SEEDS, 1, "Pendulum"), 203)
    assert not rollout["terminated"].any()
    assert np.argwhere(rollout["truncated"][0, :, 0]).tolist() == [[199]]
    assert np.argwhere(~rollout["valid"][0, :, 0]).tolist() == [[200]]
    assert rollout["episode_length"][0, [199, 200, 201, 202], 0].tolist() == [200, 0, 1, 2]


class Stacks:
    """The four latest frames of each environment; 0 before an episode's first frame."""

    def __init__(self, frames):
        self.stack = np.zeros((*frames.shape, 4), np.uint8)
        self.push(frames, np.zeros(len(frames), bool))

    def push(self, frames, resets):
        self.stack[resets] = 0
        self.stack = np.concatenate([self.stack[..., 1:], frames[..., None]], axis=-1)
        return self.stack


def assert_stacked_after_resets(rollout):
    (k, t, n), *_ = np.argwhere(~rollout["valid"][:, :-1])
    first = rollout["observation"][k, t + 1, n]
    assert not first[..., :3].any()
    assert first[..., 3].any()


def test_envpool_games_take_the_steps_of_a_pool_stepped_from_python(monkeypatch):
    options = {**envpool_engine.ATARI_OPTIONS, "max_episode_steps": 9}
    monkeypatch.setattr(envpool_engine, "ATARI_OPTIONS", options)
    rollout, last = collect(envpool_engine.make_atari("SpaceInvaders-v5", SEEDS, 2, "atari:SpaceInvaders"), 14, 10)
    numbers = SEEDS.reshape(-1).tolist()
    pool = envpool.make("SpaceInvaders-v5", env_type="gymnasium", num_envs=K * N, seed=numbers, **options)
    stacks = Stacks(pool.reset()[0][:, 0])

    def step(action, resets):
        frames, *result, _ = pool.step(action.astype(np.int32))
        return stacks.push(frames[:, 0], resets), *result

    replay(rollout, last, stacks.stack, step)
    assert rollout["truncated"].sum() >= 2 * K * N
    assert_stacked_after_resets(rollout)


def test_ale_games_take_the_steps_of_emulators_stepped_from_python(monkeypatch):
    monkeypatch.setattr(atari, "MAX_FRAMES", 64)
    rollout, last = collect(ale.make_atari("space_invaders", SEEDS, 2), 20, 12)
    emulators = make_emulators("space_invaders", K * N, 1, autoreset_mode=AutoresetMode.NEXT_STEP, stack_num=1)
    stacks = Stacks(emulators.reset(seed=SEEDS.reshape(-1))[0][:, 0])

    def step(action, resets):
        frames, *result, _ = emulators.step(action)
        return stacks.push(frames[:, 0], resets), *result

    replay(rollout, last, stacks.stack, step)
    assert rollout["truncated"].sum() >= K * N
    assert_stacked_after_resets(rollout)
    emulators.close()


def test_a_game_that_is_lost_terminates():
    rollout, _ = collect(ale.make_atari("breakout", SEEDS, 2), 250)
    assert rollout["terminated"].sum() >= K
    assert not rollout["truncated"].any()
    np.testing.assert_array_equal(rollout["valid"][:, 1:], ~rollout["terminated"][:, :-1])


@pytest.fixture(scope="module")
def overlapped():
    """A rollout by `collect` and one by `collect_while` from the same start, in a grid world."""
    environment = PureJax(KeyDoorTreasure(True), N)
    collector, collection = collector_in(environment), begin(environment, KEYS, N)
    plain = jax.jit(collector.collect, static_argnums=3)(NO_POLICY, collection, KEYS, 3)
    first, later = (lambda total, i=i: (total * 10 + i, {"total": jnp.full(K, total, float)}) for i in (1, 2))
    run = jax.jit(lambda c, k: collector.collect_while(NO_POLICY, c, k, 3, first, later, jnp.int32(0)))
    return plain, run(collection, KEYS)


def test_working_meanwhile_does_not_change_the_rollout(overlapped):
    (collection, rollout), (other_collection, other, *_) = overlapped
    jax.tree.map(np.testing.assert_array_equal, (collection, rollout), (other_collection, other))


def test_work_is_done_in_order_once_per_step(overlapped):
    *_, state, (first, later) = overlapped[1]
    assert state == 122
    assert first["total"].tolist() == [0] * K
    assert later["total"].tolist() == [(1 + 12) / 2] * K, "the mean over later steps"


def test_work_overlaps_with_an_engine_too():
    """Eight rollouts of 4 steps, over the ends of episodes."""
    found = []
    keys = [jax.vmap(lambda key, n=number: jax.random.fold_in(key, n))(KEYS) for number in range(8)]
    for overlap in (False, True):
        pool = envpool_engine.make("CartPole-v1", SEEDS, 1, "CartPole")
        collector, collection = collector_in(pool), begin(pool, KEYS, N)
        work = lambda total: (total + 1, {})  # noqa: E731

        @jax.jit
        def run(collection, keys, own=collector, work=work, overlap=overlap):
            if overlap:
                return own.collect_while(NO_POLICY, collection, keys, 4, work, work, jnp.int32(0))[:2]
            return own.collect(NO_POLICY, collection, keys, 4)

        rollouts = []
        for own_keys in keys:
            # One program at a time: another that waits for a thread while the engine holds it would wait for ever.
            collection, rollout = jax.block_until_ready(run(collection, own_keys))
            rollouts.append(rollout)
        found.append(rollouts)
        pool.close()
    jax.tree.map(np.testing.assert_array_equal, *found)
    assert not all(rollout.valid.all() for rollout in found[0]), "some steps reset"


def test_delay_and_sign_reach_the_rollout():
    environment = envpool_engine.make("CartPole-v1", SEEDS, 1, "CartPole")
    collector = collector_in(environment, delay=4, sign=True)
    run = jax.jit(collector.collect, static_argnums=3)
    _, rollout = run(NO_POLICY, begin(environment, KEYS, N), KEYS, 40)
    environment.close()
    due = (rollout.episode_length % 4 == 0) | rollout.ended
    np.testing.assert_array_equal(rollout.reward, due & rollout.valid, "1 per step, paid every 4 steps, as its sign")
    ended = np.asarray(rollout.ended)
    np.testing.assert_array_equal(np.asarray(rollout.episode_return)[ended], np.asarray(rollout.episode_length)[ended])


@pytest.mark.parametrize(("agent", "names"), [("a2c", set()), ("ppo", set()), ("vtrace", {"log_prob"})])
def test_only_the_learner_that_asks_pays_for_extras(agent, names):
    environment = PureJax(KeyDoorTreasure(), N)
    config = resolve("key-door-treasure", "authors", {"agent": agent, "num_envs": N, "network.hidden": (8,)})
    built = agents.build(config, environment.spec)
    params = [agents.initial_params(config, built, seed) for seed in range(K)]
    policies = Policy(jax.tree.map(lambda *leaves: jnp.stack(leaves), *params), None)
    collect = partial(Collector(built, environment).collect, policies, begin(environment, KEYS, N), KEYS, 2)
    assert jax.eval_shape(collect)[1].extras.keys() == names
    if names:
        _, rollout = collect()
        distribution, _ = params[0](rollout.observation[0, 1])
        expected = distribution.log_prob(rollout.action[0, 1])
        np.testing.assert_allclose(rollout.extras["log_prob"][0, 1], expected, rtol=1e-5)


def test_continuous_actions_are_clipped_for_pure_jax_environments_and_stored_raw():
    from probes import ChosenNumber

    rollout, _ = collect(PureJax(ChosenNumber(), N), 20)
    np.testing.assert_allclose(
        rollout["reward"], 1 - np.square(np.clip(rollout["action"][..., 0], -10, 10) - 2), rtol=1e-5, atol=1e-5
    )


def test_what_engines_can_save_and_share():
    names = ("key-door-treasure", "mujoco:Hopper")
    made = [backends.create(resolve(name, "authors")).make(SEEDS[:1, :1], 1) for name in names]
    assert [(env.can_be_saved, env.can_be_shared) for env in made] == [(True, True), (False, False)]
    assert gymnasium.make("Hopper-v5").observation_space.shape == made[1].spec.observation_shape
    for environment in made:
        environment.close()
