"""Action distributions."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray


class Categorical(eqx.Module):
    """One of A actions, by the softmax of its logits. A logit of -inf forbids its action."""

    logits: Float[Array, "batch A"]

    def sample(self, key: PRNGKeyArray) -> Int[Array, " batch"]:
        return jax.random.categorical(key, self.logits).astype(jnp.int32)

    def mode(self) -> Int[Array, " batch"]:
        return jnp.argmax(self.logits, axis=-1).astype(jnp.int32)

    def log_prob(self, action: Int[Array, " batch"]) -> Float[Array, " batch"]:
        chosen = jax.nn.one_hot(action, self.logits.shape[-1], dtype=bool)
        return jnp.sum(jnp.where(chosen, jax.nn.log_softmax(self.logits), 0.0), axis=-1)

    def entropy(self) -> Float[Array, " batch"]:
        allowed = self.logits > -jnp.inf
        log_probs = jnp.where(allowed, jax.nn.log_softmax(self.logits), 0.0)
        return -jnp.sum(jnp.where(allowed, jnp.exp(log_probs), 0.0) * log_probs, axis=-1)
