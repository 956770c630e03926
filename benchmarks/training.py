"""Whole training iterations, and beside them the bare arithmetic of their gradient steps."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from self_imitation.training import agents
from self_imitation import collection
from self_imitation.algorithm import self_imitation as imitation
from self_imitation.algorithm import optimiser as optimisation
from self_imitation.algorithm.iteration import Agent
from self_imitation.benchmarks.timing import best_seconds
from self_imitation.config import TrainConfig, resolve
from self_imitation.replay.buffer import Batch
from self_imitation.runs.program import DeviceProgram
from self_imitation.types import TrainState, Rollout

SHARED_64 = {"network.hidden": (64,), "network.shared": True}
TWO_64_64 = {"network.hidden": (64, 64), "network.shared": False}
CASES = {
    "a2c, one shared FC(64)": {"agent": "a2c", **SHARED_64},
    "a2c+sil, one shared FC(64)": {"agent": "a2c+sil", **SHARED_64},
    "a2c+sil, two 64-64 networks": {"agent": "a2c+sil", **TWO_64_64},
}
ITERATIONS = {"a2c": 5000, "a2c+sil": 500}


def measure(case: str) -> dict[str, Any]:
    """Environment steps per second of one seed, and what share of that time its gradient steps alone would take.

    All episodes are kept, so that the memory works from the start: with nothing rewarding found yet, it would idle.
    """
    overrides = {"seeds": 1, "sil.buffer_size": 100_000, "sil.keep": "all", **CASES[case]}
    config = resolve("key-door-treasure", "authors", overrides)
    iterations = ITERATIONS[config.agent]
    program = DeviceProgram(config)
    progress = program.begin()
    program.compile(progress)
    held = [program.advance(progress, 4 * iterations)]

    def train() -> Any:
        held[0] = program.advance(held[0], iterations)
        return held[0].tally

    arithmetic = jax.jit(partial(_gradient_steps, program.agent, iterations))
    train_state, rollout, batches = _fixed_batches(config, program.agent)
    train_seconds, arithmetic_seconds = best_seconds(train, lambda: arithmetic(train_state, rollout, batches))
    return {
        "case": case,
        "steps_per_second": iterations * config.steps_per_iteration / train_seconds,
        "iteration_ms": 1e3 * train_seconds / iterations,
        "gradient_steps_ms": 1e3 * arithmetic_seconds / iterations,
        "gradient_share": arithmetic_seconds / train_seconds,
    }


def _fixed_batches(config: TrainConfig, agent: Agent) -> tuple[TrainState, Rollout, Batch | None]:
    """A rollout, and for each self-imitation update a batch of as many of its states."""
    params = agents.initial_params(config, agent, seed=0)
    state = agents.begin(agent, params, jnp.uint32(0))
    assert agent.environment is not None
    assert state.acting is not None
    _, rollout = collection.collect_on_device(
        agent.environment, agent.actor_critic, params, state.acting, agent.rollout, jax.random.key(1)
    )
    if agent.imitation is None:
        return state.train_state, rollout, None
    shape = (agent.imitation.updates, agent.imitation.batch)
    chosen = jax.random.randint(jax.random.key(2), shape, 0, config.steps_per_iteration)
    returns = jax.random.uniform(jax.random.key(3), shape)

    def batch(chosen: Int[Array, " batch"], returns: Float[Array, " batch"]) -> Batch:
        observation = rollout.observation.reshape(-1, *rollout.observation.shape[2:])[chosen]
        return Batch(chosen, observation, rollout.action.reshape(-1)[chosen], returns, jnp.ones_like(returns))

    return state.train_state, rollout, jax.vmap(batch)(chosen, returns)


def _gradient_steps(
    agent: Agent, iterations: int, train_state: TrainState, rollout: Rollout, batches: Batch | None
) -> TrainState:
    """What an iteration's updates cost by themselves: the shipped losses and optimiser on fixed data, in one scan."""

    def self_imitation(train_state: TrainState, batch: Batch) -> tuple[TrainState, None]:
        assert agent.imitation is not None
        gradient, _ = jax.grad(imitation.loss_of_batch, has_aux=True)(
            train_state.params, agent.actor_critic, batch, agent.imitation
        )
        return optimisation.apply_gradients(agent.optimiser, train_state, gradient), None

    def once(train_state: TrainState, _: None) -> tuple[TrainState, None]:
        train_state, _metrics = agent.improvement.improve(
            agent.actor_critic, agent.optimiser, train_state, rollout, None, jax.random.key(4)
        )
        if batches is not None:
            train_state, _ = jax.lax.scan(self_imitation, train_state, batches)
        return train_state, None

    return jax.lax.scan(once, train_state, length=iterations)[0]
