"""Train with a network of your own: python examples/custom_network.py"""

import argparse

import equinox as eqx
import jax

import self_imitation
from self_imitation.networks.actor_critic import HIDDEN_GAIN, POLICY_GAIN, VALUE_GAIN, Linear


class Residual(eqx.Module):
    """Two layers with a connection around the second, shared by policy and value; for vectors and discrete actions."""

    first: Linear
    second: Linear
    policy: Linear
    value: Linear

    def __init__(self, spec, config, generator, width=64):
        self.first = Linear(spec.observation_shape[0], width, HIDDEN_GAIN, generator)
        self.second = Linear(width, width, HIDDEN_GAIN, generator)
        self.policy = Linear(width, spec.actions.count, POLICY_GAIN, generator)
        self.value = Linear(width, 1, VALUE_GAIN, generator)

    def __call__(self, observation):
        x = jax.nn.silu(self.first(observation))
        x = x + jax.nn.silu(self.second(x))
        return self_imitation.Categorical(self.policy(x)), self.value(x)[:, 0]


parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--steps", type=int, default=200_000, help="environment steps of each seed")
run = self_imitation.train("gym:CartPole-v1", "ppo+sil", steps=parser.parse_args().steps, network=Residual)
print(f"{run.path}: mean return {run.evaluate(episodes=20).mean:.1f} of 500")
