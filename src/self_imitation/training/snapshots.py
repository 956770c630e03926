"""What each seed remembers and does, read from the state of the training: the content of record/snapshots."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from self_imitation.algorithm import iteration
from self_imitation.algorithm.components import Agent
from self_imitation.algorithm.iteration import AgentState, Policy
from self_imitation.config import TrainConfig
from self_imitation.environments import registry
from self_imitation.recording import films, grid_world, remembered
from self_imitation.recording.remembered import Episodes, Memory, rounded
from self_imitation.replay import buffer as replay
from self_imitation.replay.buffer import ReplayBuffer
from self_imitation.training.trainer import Trainer
from self_imitation.types import Actions, Discrete

MAX_SEEDS = 4
"""Seeds that are recorded: the first ones."""
SAMPLED_STEPS = 512
"""Steps of the replay buffer whose values are computed."""
STRIP_PICTURES = 24
"""Of the best episode in the replay buffer."""


class Snapshots:
    """Takes snapshots. The first one compiles what all of them use."""

    def __init__(self, config: TrainConfig, trainer: Trainer):
        self._trainer = trainer
        self._seeds = config.seed_numbers[:MAX_SEEDS]
        self._grid = grid_world.of_environment(config.env)
        self._has_frames = registry.find(config.env).atari_rom is not None
        self._table: Any = jax.jit(jax.vmap(partial(_policy_and_values, trainer.agent), (0, None)))
        self._values: Any = jax.jit(jax.vmap(partial(_stored_values, trainer.agent)))
        self._frames: Any = jax.jit(jax.vmap(lambda frames, slot: frames[slot]))

    def take(self, step: int) -> list[dict[str, Any]]:
        """Of every recorded seed. Random numbers depend on the step, and nothing else uses them."""
        rng, taken = np.random.default_rng(step), []
        for group, state in zip(self._trainer.groups, self._trainer.states, strict=True):
            indices = {seed: i for i, seed in enumerate(group.seeds) if seed in self._seeds}
            if indices:
                found = self._of_group(state.agents, list(indices.values()), rng)
                taken += [{"seed": seed, **own} for seed, own in zip(indices, found, strict=True)]
        return taken

    def _of_group(self, agents: AgentState, indices: Sequence[int], rng: np.random.Generator) -> list[dict[str, Any]]:
        buffer = agents.buffer
        memories = {} if buffer is None else {i: remembered.read(buffer, i) for i in indices}
        found = {i: remembered.episodes(memory) for i, memory in memories.items()}
        taken: list[dict[str, Any]] = [
            {"memory": remembered.to_json(memories[i], found[i])} if i in memories else {} for i in indices
        ]
        if self._grid is not None:
            others = self._in_grid_world(self._grid, agents, memories, found, indices)
        elif buffer is not None:
            others = self._elsewhere(agents.compared, buffer, memories, found, rng)
        else:
            others = [{} for _ in indices]
        return [{**own, **other} for own, other in zip(taken, others, strict=True)]

    def _in_grid_world(
        self,
        grid: grid_world.GridWorld,
        agents: AgentState,
        memories: Mapping[int, Memory],
        found: Mapping[int, Episodes],
        indices: Sequence[int],
    ) -> list[dict[str, Any]]:
        """The policy in every state; so the value that every stored return is compared with is known."""
        probabilities, values = jax.device_get(self._table(agents.policy, grid.observations))
        _, compared = jax.device_get(self._table(agents.compared, grid.observations))
        taken = []
        for i in indices:
            own: dict[str, Any] = {"policy": grid.policy(probabilities[i], values[i])}
            if agents.buffer is not None:
                memory = memories[i]
                observations, actions = (
                    np.asarray(stored)[i, memory.slot] for stored in (agents.buffer.observation, agents.buffer.action)
                )
                states = grid.state_of(observations)
                own["imitated"] = remembered.imitated(memory, np.arange(len(states)), compared[i][states])
                own["remembered"] = grid.counts(states)
                own["best"] = grid.path(memory, found[i], observations, actions)
            taken.append(own)
        return taken

    def _elsewhere(
        self,
        compared: Policy,
        buffer: ReplayBuffer,
        memories: Mapping[int, Memory],
        found: Mapping[int, Episodes],
        rng: np.random.Generator,
    ) -> list[dict[str, Any]]:
        """The values that some stored returns are compared with; of images also the best episode."""
        seeds = buffer.returns.shape[0]
        places, slots = {}, np.zeros((seeds, SAMPLED_STEPS), np.int32)
        for i, memory in memories.items():
            places[i] = rng.integers(len(memory.slot), size=SAMPLED_STEPS) if len(memory.slot) else np.zeros(0, int)
            slots[i, : len(places[i])] = memory.slot[places[i]]
        values = np.asarray(self._values(compared, buffer, slots))
        taken = [
            {"imitated": remembered.imitated(memories[i], place, values[i, : len(place)])}
            for i, place in places.items()
        ]
        if not self._has_frames:
            return taken
        return [{**own, **strip} for own, strip in zip(taken, self._strips(buffer, memories, found), strict=True)]

    def _strips(
        self, buffer: ReplayBuffer, memories: Mapping[int, Memory], found: Mapping[int, Episodes]
    ) -> list[dict[str, Any]]:
        """The best episode in the buffer as a film strip."""
        shown: dict[int, np.ndarray] = {}
        slots = np.zeros((buffer.returns.shape[0], STRIP_PICTURES), np.int32)
        for i, memory in memories.items():
            best = found[i].best()
            if best is not None:
                first, last = found[i].first[best], found[i].last[best]
                shown[i] = films.chosen_steps(memory.reward[first : last + 1], STRIP_PICTURES)
                slots[i, : len(shown[i])] = memory.slot[first + shown[i]]
        pictures = np.asarray(self._frames(buffer.observation, slots))[..., 0]
        taken: list[dict[str, Any]] = []
        for i, memory in memories.items():
            best = found[i].best()
            if best is None:
                taken.append({"best": {}})
                continue
            rewards = memory.reward[found[i].first[best] : found[i].last[best] + 1]
            film = films.to_json(pictures[i, : len(shown[i])], shown[i], rewards)
            total, age = rounded(found[i].total[best]), int(found[i].age[best])
            taken.append({"best": {"return": total, "age": age, "length": len(rewards), "film": film}})
        return taken


def _policy_and_values(
    agent: Agent, policy: Policy, observations: Float[Array, "states numbers"]
) -> tuple[Float[Array, "states A"], Float[Array, " states"]]:
    """Probabilities of the actions, and values in units of rewards."""
    distribution, value = iteration.actor_critic(agent, policy.normaliser)(policy.params, observations)
    actions: Actions = agent.spec.actions
    assert isinstance(actions, Discrete)
    chances = [jnp.exp(distribution.log_prob(jnp.full(len(value), action))) for action in range(actions.count)]
    return jnp.stack(chances, axis=-1), value / _reward_scale(agent, policy)


def _stored_values(
    agent: Agent, compared: Policy, buffer: ReplayBuffer, slot: Int[Array, " batch"]
) -> Float[Array, " batch"]:
    """Values that stored returns are compared with, in units of rewards."""
    batch = replay.batch_at(buffer, slot, jnp.ones(slot.shape))
    _, value = iteration.actor_critic(agent, compared.normaliser)(compared.params, batch.observation)
    return value / _reward_scale(agent, compared)


def _reward_scale(agent: Agent, policy: Policy) -> Float[Array, ""]:
    if agent.normaliser is None or policy.normaliser is None:
        return jnp.float32(1.0)
    return agent.normaliser.scale_rewards(policy.normaliser, jnp.float32(1.0))
