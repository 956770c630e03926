"""Self-imitation as a callback of Stable-Baselines3's A2C and PPO, which stay as they are."""

import dataclasses
import os
import warnings
from typing import Any

import numpy as np
from stable_baselines3 import A2C, PPO
from stable_baselines3.common.callbacks import BaseCallback

from self_imitation.errors import UsageError
from self_imitation.replay.buffer import Batch
from self_imitation.sb3 import file, loss, settings, steps
from self_imitation.sb3.loss import Metrics
from self_imitation.sb3.memory import Memory
from self_imitation.sb3.normalisation import Normalisation
from self_imitation.sb3.optimiser import Optimiser
from self_imitation.sb3.own_value import OwnValue
from self_imitation.sb3.tensors import actions_to_torch, to_torch
from self_imitation.settings import SelfImitationConfig
from self_imitation.storage import files


class SelfImitation(BaseCallback):
    """Imitate past actions whose return beat the value (Eq. 1-3): `model.learn(..., callback=SelfImitation())`.

    As in Algorithm 1, M updates of self-imitation follow each update of the model: they are made when SB3 calls back at
    the start of the next rollout, and at the end of training. The callback remembers over several calls of `learn`;
    `save` and `load` move it to another process, beside the model.
    """

    model: Any  # A2C or PPO
    _normalisation: Normalisation
    _optimiser: Optimiser
    _value: OwnValue | None
    _rollout: steps.Steps
    _row: int
    _observation: Any

    def __init__(self, preset: str = "authors", verbose: int = 0, **changes: Any):
        """The defaults are those of `sil train gym:ID` with agent a2c+sil or ppo+sil.

        Args:
            preset: `authors` or `paper`.
            verbose: as for other callbacks of Stable-Baselines3.
            **changes: fields of `SelfImitationConfig`, such as `updates` or `batch_size`.

        Raises:
            UsageError: a preset or field is unknown, or a value is not allowed.
        """
        super().__init__(verbose)
        settings.resolve("a2c", preset, changes)  # bad values are reported here, not when training starts
        self._preset, self._changes = preset, changes
        self._stored: file.Stored | None = None
        self._memory: Memory | None = None
        self._update_due = False
        self._recorded_until = -1
        """Steps of the model at the end of the latest rollout that was recorded."""

    @property
    def memory(self) -> Memory:
        """The replay buffer."""
        if self._memory is None:
            raise UsageError("SelfImitation: it has no replay buffer before training starts")
        return self._memory

    @property
    def config(self) -> SelfImitationConfig:
        """All settings. Defaults depend on the model."""
        return self.memory.config

    def _init_callback(self) -> None:
        if not isinstance(self.model, A2C | PPO):
            name = type(self.model).__name__
            raise UsageError(f"model: {name} is not supported; self-imitation works with A2C and PPO")
        self._normalisation = Normalisation.of(self.training_env)
        if self._memory is None:
            self._create()
        self._memory = self.memory.fitted(self._empty_rollout())
        if self._optimiser.policy is not self.model.policy:
            self._optimiser = Optimiser(self.model.policy, self.config)

    def _create(self) -> None:
        stored = self._stored
        config = stored.config if stored else self._resolve()
        memory = Memory(self._empty_rollout(), config, stored.counters["seed"] if stored else self._seed())
        optimiser = Optimiser(self.model.policy, config)
        if stored is not None:
            memory.restore(stored.buffer, stored.counters, stored.source)
            optimiser.restore(stored.optimiser, stored.source)
        self._value = OwnValue(self.model.policy, config) if config.value == "own" else None
        if stored is not None and self._value is not None:
            self._value.restore(stored.value, stored.source)
        self._memory, self._optimiser, self._stored = memory, optimiser, None

    def _resolve(self) -> SelfImitationConfig:
        algorithm = "ppo" if isinstance(self.model, PPO) else "a2c"
        config = settings.resolve(algorithm, self._preset, self._changes)
        return config if config.gamma is not None else dataclasses.replace(config, gamma=float(self.model.gamma))

    def _seed(self) -> int:
        return int(np.random.default_rng().integers(2**31)) if self.model.seed is None else int(self.model.seed)

    def _empty_rollout(self) -> steps.Steps:
        model = self.model
        return steps.empty(model.observation_space, model.action_space, model.n_steps, model.n_envs)

    def _on_training_start(self) -> None:
        self._observation = self._normalisation.raw_observation(self.model._last_obs)
        # Unfinished episodes don't go on if the environments were reset, or stepped while the callback was away.
        if self.model._last_episode_starts.all() or self.model.num_timesteps != self._recorded_until:
            self.memory.drop_pending()

    def _on_rollout_start(self) -> None:
        self._update_if_due()
        self._rollout, self._row = self._empty_rollout(), 0

    def _on_step(self) -> bool:
        reward = self._normalisation.raw_reward(self.locals["rewards"])
        actions, ended, infos = (self.locals[name] for name in ("actions", "dones", "infos"))
        steps.write(self._rollout, self._row, self._observation, actions, reward, ended, infos)
        self._row += 1
        self._observation = self._normalisation.raw_observation(self.locals["new_obs"])
        return True

    def _on_rollout_end(self) -> None:
        self.memory.insert(self._rollout)
        self._recorded_until = self.model.num_timesteps
        self._update_due = True  # after the model's own update, which comes next

    def _on_training_end(self) -> None:
        self._update_if_due()
        size, needed = self.memory.size, self.config.learning_starts
        if size <= needed:
            warnings.warn(
                f"self-imitation: nothing to imitate, since {size} steps of finished episodes are stored and updates "
                f"need more than {needed}; stored are episodes by keep = {self.config.keep!r}",
                stacklevel=2,
            )

    def _update_if_due(self) -> None:
        """The last loop of Algorithm 1: M times sample a batch, take a gradient step, update the priorities."""
        if not self._update_due:
            return
        self._update_due = False
        self.logger.record("sil/buffer_size", self.memory.size)
        if self.memory.size <= self.config.learning_starts:
            return
        policy, training = self.model.policy, self.model.policy.training
        policy.set_training_mode(True)
        returns = self._normalisation.returns(self.memory)
        errors = [self._fit_value(self._value, returns) for _ in range(self.config.updates)] if self._value else []
        metrics = [self._update(returns) for _ in range(self.config.updates)]
        for own, error in zip(metrics, errors, strict=False):
            own["value_loss"] = error
        policy.set_training_mode(training)
        if self.model.use_sde:
            policy.reset_noise(self.model.n_envs)  # its scale is a parameter and has changed
        for name in metrics[0]:
            self.logger.record(f"sil/{name}", float(np.mean([update[name] for update in metrics])))

    def _update(self, returns: np.ndarray | None) -> Metrics:
        """`returns`: of all slots, if not those that are stored."""
        batch = self.memory.sample()
        observation, targets, weight = self._to_torch(batch, returns)
        advantage, metrics = loss.gradient_step(
            self.model.policy,
            self._optimiser.current(),
            observation,
            actions_to_torch(batch.action, self.model.action_space, self.model.device),
            targets,
            weight,
            self.model.max_grad_norm,
            self.config,
            self._value,
        )
        self.memory.update_priorities(batch, advantage.cpu().numpy())
        return metrics

    def _fit_value(self, value: OwnValue, returns: np.ndarray | None) -> float:
        return value.gradient_step(*self._to_torch(self.memory.sample(), returns))

    def _to_torch(self, batch: Batch, returns: np.ndarray | None) -> tuple[Any, Any, Any]:
        """Observations, returns and weights, in the policy's units."""
        targets = batch.returns if returns is None else returns[np.asarray(batch.slot)]
        observation, device = self._normalisation.observation(batch.observation), self.model.device
        return to_torch(observation, device), to_torch(targets, device), to_torch(batch.weight, device)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write settings, replay buffer, own optimiser and own value to a file. Unfinished episodes are left out."""
        memory = self.memory
        value = self._value.to_arrays() if self._value else {}
        stored = file.Stored(
            str(path), memory.config, memory.counters(), memory.to_arrays(), self._optimiser.to_arrays(), value
        )
        file.save(files.absolute(path), stored)

    @classmethod
    def load(cls, path: str | os.PathLike[str], verbose: int = 0) -> "SelfImitation":
        """The callback that `save` wrote, for a model with the same spaces."""
        callback = cls(verbose=verbose)
        callback._stored = file.load(files.absolute(path))
        return callback
