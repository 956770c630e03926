"""XLand-MiniGrid, against the suite's own functions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import self_imitation
from self_imitation.environments import registry
from self_imitation.environments.jax.suites import xland
from self_imitation.errors import UsageError

pytestmark = pytest.mark.extras
NAME = "MiniGrid-Empty-5x5"


def test_steps_are_those_of_the_suite_through_several_ends():
    import xminigrid

    suite, params = xminigrid.make(NAME)
    environment = xland.XLand(NAME)
    step, expected_step = jax.jit(environment.step), jax.jit(lambda *given: suite.step(params, *given))
    generator, ends = np.random.default_rng(0), []
    state = expected = environment.reset(jax.random.key(0))
    for number in range(1200):
        action = jnp.int32(generator.integers(3))
        found, expected = step(state, action), expected_step(expected, action)
        state = found.state
        np.testing.assert_allclose(found.observation * 6 + 6, expected.observation.reshape(-1), atol=1e-5)
        assert found.reward == expected.reward
        assert bool(found.terminated | found.truncated) == bool(expected.last())
        if found.terminated | found.truncated:
            assert bool(found.terminated) == (float(expected.reward) > 0), "the goal ends it, or the time limit"
            ends.append(bool(found.terminated))
            state = expected = environment.reset(jax.random.key(number))
    assert {True, False} == set(ends)


def test_a_run_resumes_exactly(tmp_path):
    settings = {"num_envs": 4, "num_steps": 32, "ppo.num_minibatches": 4, "log_every": 128}
    options = {"agent": "ppo+sil", "seeds": 2, "settings": settings}
    whole = self_imitation.train(f"xland:{NAME}", steps=1024, out=tmp_path / "whole", **options)
    part = self_imitation.train(f"xland:{NAME}", steps=512, out=tmp_path / "part", **options)
    resumed = self_imitation.resume(part.path, steps=1024)
    timed = ("seconds", "steps_per_second")
    rows = [
        [{name: value for name, value in row.items() if name not in timed} for row in run.metrics()]
        for run in (whole, resumed)
    ]
    np.testing.assert_equal(rows[0], rows[1])


def test_unknown_names_are_refused_with_a_suggestion():
    with pytest.raises(UsageError, match="did you mean 'xland:MiniGrid-DoorKey-8x8'"):
        xland.XLand("MiniGrid-DoorKey-8x9")


def test_without_the_package_a_line_says_what_to_install(monkeypatch):
    monkeypatch.setattr(xland, "available", lambda: False)
    with pytest.raises(UsageError, match=r"pip install 'self-imitation\[xland\]'"):
        registry.find(f"xland:{NAME}").pure_jax()
    assert xland.names() == ()
