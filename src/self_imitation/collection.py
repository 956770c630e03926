"""Acting: the same `Rollout` from every kind of environment."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree, Shaped

from self_imitation.types import Actions, ActorCritic, Continuous, Environment, Params, Rollout


class Acting(eqx.Module):
    """Where N copies of an environment stand."""

    environment: PyTree
    observation: Shaped[Array, "N ..."]
    episode_return: Float[Array, " N"]
    episode_length: Int[Array, " N"]


def begin(environment: Environment, environments: int, key: PRNGKeyArray) -> Acting:
    state = jax.vmap(environment.reset)(jax.random.split(key, environments))
    return Acting(
        state, jax.vmap(environment.observe)(state), jnp.zeros(environments), jnp.zeros(environments, jnp.int32)
    )


def collect_on_device(
    environment: Environment,
    actor_critic: ActorCritic,
    params: Params,
    acting: Acting,
    steps: int,
    key: PRNGKeyArray,
) -> tuple[Acting, Rollout]:
    """Act for some steps in every copy; one that ended is reset at once."""
    environments = acting.observation.shape[0]

    def act(acting: Acting, keys: tuple[PRNGKeyArray, PRNGKeyArray]) -> tuple[Acting, dict]:
        key_action, key_reset = keys
        distribution, _ = actor_critic(params, acting.observation)
        action = distribution.sample(key_action)
        step = jax.vmap(environment.step)(acting.environment, _within(environment.spec.actions, action))
        ended = step.terminated | step.truncated
        episode_return = acting.episode_return + step.reward
        episode_length = acting.episode_length + 1
        fresh = begin(environment, environments, key_reset)
        onwards = Acting(step.state, step.observation, episode_return, episode_length)
        return _where(ended, fresh, onwards), {
            "observation": acting.observation,
            "action": action,
            "reward": step.reward,
            "terminated": step.terminated,
            "truncated": step.truncated,
            "successor": step.observation,
            "episode_return": episode_return,
            "episode_length": episode_length,
        }

    key_actions, key_resets = jax.random.split(key)
    keys = jax.random.split(key_actions, steps), jax.random.split(key_resets, steps)
    acting, columns = jax.lax.scan(act, acting, keys)
    return acting, Rollout(**columns, last_observation=acting.observation)


def _within(actions: Actions, action: Shaped[Array, "N ..."]) -> Shaped[Array, "N ..."]:
    """What the environment gets; the rollout keeps what the policy chose."""
    if isinstance(actions, Continuous):
        return jnp.clip(action, jnp.array(actions.low), jnp.array(actions.high))
    return action


def _where(condition: Bool[Array, " N"], yes: PyTree, no: PyTree) -> PyTree:
    def choose(a: Array, b: Array) -> Array:
        return jnp.where(condition.reshape(-1, *(1,) * (a.ndim - 1)), a, b)

    return jax.tree.map(choose, yes, no)
