"""Environments that a Python program passes."""

from functools import partial

import gymnasium
import pytest
from gymnasium.wrappers import TimeAwareObservation, TimeLimit
from gymnasium_probes import Counter

from self_imitation.environments.gymnasium.make import EnvSource, make_env
from self_imitation.environments.gymnasium.objects import from_object
from self_imitation.environments.gymnasium.rendering import make_player
from self_imitation.environments.gymnasium.vector import make_vector
from self_imitation.errors import UsageError


class Unrecorded(gymnasium.Wrapper):
    """A wrapper that Gymnasium can't make again."""


def test_classes_and_functions_are_named_by_their_module():
    assert from_object("gym:CartPole-v1").name == "gym:CartPole-v1"
    assert (from_object(Counter).name, from_object(Counter).factory) == ("python:gymnasium_probes.Counter", Counter)
    assert from_object(partial(Counter)).name == "python:gymnasium_probes.Counter"
    assert from_object(lambda: Counter()).name.endswith("<lambda>")


def test_what_gymnasium_made_is_an_id_and_its_arguments():
    plain = from_object(gymnasium.make("CartPole-v1", render_mode="rgb_array"))
    assert (plain.name, plain.kwargs, plain.factory) == ("gym:CartPole-v1", {}, None)
    changed = from_object(gymnasium.make("FrozenLake-v1", is_slippery=False, max_episode_steps=7))
    assert (changed.name, changed.kwargs) == ("gym:FrozenLake-v1", {"is_slippery": False, "max_episode_steps": 7})


def test_what_gymnasium_can_copy_is_copied_with_its_wrappers():
    given = from_object(TimeAwareObservation(gymnasium.make("CartPole-v1", render_mode="human")))
    assert given.name == "python:CartPole-v1+TimeAwareObservation"
    copy = make_env(EnvSource(given.name, factory=given.factory))
    assert copy.observation_space.shape == (5,)
    assert copy.render_mode is None


@pytest.mark.parametrize(
    ("env", "message"),
    [
        (Counter(), "env: copies of this Counter are needed, and it was not made by gymnasium.make; pass a function"),
        (TimeLimit(Counter(), 3), "pass a function that makes it, such as env=lambda: TimeLimit(...)"),
        (
            Unrecorded(gymnasium.make("CartPole-v1")),
            "copies are needed, and Gymnasium can't copy its wrapper Unrecorded",
        ),
        (3, "env: 3 is not allowed; allowed: a name, a class or function that makes an environment, or what"),
    ],
)
def test_what_can_not_be_copied_is_refused(env, message):
    with pytest.raises(UsageError) as error:
        from_object(env)
    assert message in str(error.value)


def test_a_function_must_make_a_new_environment_each_time():
    env = Counter()
    with pytest.raises(UsageError, match="returned the same object twice; each copy must be new"):
        make_vector(EnvSource("python:x", factory=lambda: env), 2, in_processes=False)
    with pytest.raises(UsageError, match=r"env: 'python:x' made 3, not a gymnasium\.Env"):
        make_env(EnvSource("python:x", factory=lambda: 3))


def test_a_time_limit_is_known_without_a_spec():
    assert make_env(EnvSource("python:x", factory=lambda: TimeLimit(Counter(), 9))).spaces.spec.max_episode_steps == 9


def test_a_function_that_takes_a_render_mode_can_be_rendered():
    cartpole = gymnasium.spec("CartPole-v1")
    player = make_player(
        EnvSource("python:x", factory=lambda render_mode=None: cartpole.make(render_mode=render_mode)), None
    )
    player.reset(0)
    assert player.picture().shape == (400, 600, 3)
    player.close()
    with pytest.raises(UsageError, match="it is made without a render mode: pass a function that takes render_mode"):
        make_player(EnvSource("python:x", factory=cartpole.make), None)


def test_copies_in_processes_take_functions_too():
    vector = make_vector(EnvSource("python:x", factory=lambda: TimeLimit(Counter(), 9)), 2, in_processes=True)
    assert vector.spaces.spec.max_episode_steps == 9
    assert vector.close() == ""
