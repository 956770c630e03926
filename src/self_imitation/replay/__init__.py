"""Replay of finished episodes: an empty buffer, inserting steps, sampling them by priority, new priorities."""

from self_imitation.replay.buffer import Batch, ReplayBuffer, create, insert, sample, update_priorities

__all__ = ["Batch", "ReplayBuffer", "create", "insert", "sample", "update_priorities"]
