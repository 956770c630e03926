"""One copy of an environment that can be watched."""

import os
import subprocess
import sys
import warnings

import cv2
import gymnasium
import gymnasium_probes
import numpy as np
import pytest

from self_imitation.environments.gymnasium import rendering
from self_imitation.environments.gymnasium.rendering import make_player
from self_imitation.environments.gymnasium.vector import make_atari_vector
from self_imitation.errors import FaultyEnvironmentError, UsageError

DRAWN = "gymnasium_probes:Drawn-v0"


def test_an_episode_with_its_pictures():
    player = make_player(DRAWN, None)
    assert player.steps_per_second == 10
    assert player.reset(5).tolist() == [[5, 0, 0]]
    assert (player.picture().shape, player.picture().dtype, player.picture().max()) == ((30, 41, 3), np.uint8, 0)
    observation, reward, ended = player.step(np.array([1]))
    assert (observation.tolist(), reward, ended) == ([[5, 0, 1]], 1.0, False)
    observation, reward, ended = player.step(np.array([1]))
    assert (observation.tolist(), reward, ended) == ([[5, 0, 2]], 2.0, True)
    assert player.picture().min() == 200, "the end is shown, not the next start"
    player.close()


def test_observations_are_those_of_the_environment():
    player, env = make_player("CartPole-v1", None), gymnasium.make("CartPole-v1")
    np.testing.assert_allclose(player.reset(9)[0], env.reset(seed=9)[0])
    for action in (0, 1, 1):
        np.testing.assert_allclose(player.step(np.array([action]))[0][0], env.step(action)[0])
    assert player.picture().shape == (400, 600, 3)
    assert player.steps_per_second == 50
    assert os.environ["SDL_VIDEODRIVER"] == "dummy"
    player.close()


def test_composite_observations():
    pytest.importorskip("minigrid")
    player = make_player("minigrid:MiniGrid-Empty-5x5-v0", None)
    assert player.reset(0).shape == (1, 151)
    assert player.picture().shape[-1] == 3


def test_it_is_built_once(monkeypatch):
    monkeypatch.setattr(gymnasium_probes.Counted, "metadata", {"render_modes": ["rgb_array"]})
    gymnasium_probes.Counted.built = 0
    player = make_player("gymnasium_probes:Counted-v0", None)
    player.reset(0)
    assert gymnasium_probes.Counted.built == 1
    assert player.steps_per_second == rendering.DEFAULT_STEPS_PER_SECOND


def first_picture():
    warnings.simplefilter("error")
    player = make_player(DRAWN, None)
    player.reset(0)
    return player.picture()


def raising(_):
    raise RuntimeError("no display\nsee the manual")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"metadata": {"render_modes": ["human"]}}, "it has no render mode 'rgb_array' (it has: human)"),
        ({"metadata": {}}, "it has no render mode 'rgb_array' (it has: none)"),
        ({"render": lambda _: np.zeros((4, 3), np.uint8)}, "its picture has shape (4, 3), not height x width x 3"),
        ({"render": raising}, "it raised RuntimeError: no display"),
    ],
)
def test_an_environment_that_cannot_be_rendered_is_refused(changes, message, monkeypatch):
    for name, value in changes.items():
        monkeypatch.setattr(gymnasium_probes.Drawn, name, value)
    with warnings.catch_warnings(), pytest.raises(UsageError) as refused:
        first_picture()
    assert str(refused.value) == f"env: '{DRAWN}' can't be rendered; {message}"


def test_render_modes_are_named_where_the_environment_refuses_to_be_built():
    gym_id = "gymnasium_probes:RefusesOtherModes-v0"
    with pytest.raises(UsageError, match=r"can't be rendered; it has no render mode 'rgb_array' \(it has: human\)"):
        make_player(gym_id, None)


def test_what_cannot_be_created_is_explained_as_in_training():
    gymnasium.register("Unimportable-v0", entry_point="no_such_module:X")
    for gym_id in ("Nope-v0", "Unimportable-v0"):
        with pytest.raises(UsageError, match=f"'{gym_id}' can't be created"):
            make_player(gym_id, None)


@pytest.mark.parametrize("name", ["reset", "step"])
def test_faults_are_one_sentence(name, monkeypatch):
    def fail(*_, **__):
        raise ConnectionError("the game server is away")

    monkeypatch.setattr(gymnasium_probes.Drawn, name, fail)
    player = make_player(DRAWN, None)
    calls = [lambda: player.reset(0), lambda: player.step(np.array([0]))]
    with pytest.raises(FaultyEnvironmentError, match=r"^raised ConnectionError: the game server is away$"):
        [call() for call in calls]


def test_the_camera_follows_the_body(monkeypatch):
    arguments = []
    make = gymnasium.make
    monkeypatch.setattr(
        gymnasium, "make", lambda *_, **given: arguments.append(given) or make("CartPole-v1", render_mode="rgb_array")
    )
    make_player("Hopper-v5", None).close()
    make_player("CartPole-v1", None).close()
    assert [given.get("camera_name") for given in arguments] == ["track", None]


def can_render(backend):
    """Tried in another process, where a failure does no harm."""
    code = "import mujoco; mujoco.GLContext(64, 64).make_current()"
    environment = {**os.environ, "MUJOCO_GL": backend}
    return (
        subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, check=False).returncode == 0
    )


def test_mujoco_is_rendered_or_the_variable_to_set_is_named(tmp_path):
    backend = next((name for name in ("egl", "osmesa") if can_render(name)), None)
    code = (
        "from self_imitation.environments.gymnasium.rendering import make_player\n"
        "player = make_player('Hopper-v5', None)\n"
        "player.reset(0)\n"
        "print(player.picture().shape)"
    )
    environment = {**os.environ, "MUJOCO_GL": backend or "egl"}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    if backend is None:
        assert "UsageError: env: 'Hopper-v5' can't be " in done.stderr
        assert "set MUJOCO_GL=egl or osmesa" in done.stderr
    else:
        assert done.stdout == "(480, 480, 3)\n"


def test_an_atari_game_is_shown_in_colour_while_the_policy_sees_its_own_frames():
    player, vector = make_player(None, "breakout"), make_atari_vector("breakout", 1, 1)
    assert player.steps_per_second == 15
    assert player.spaces.spec == vector.spaces.spec
    np.testing.assert_array_equal(player.reset(5), vector.reset([5]))
    for _ in range(30):
        observation, reward, ended = player.step(np.array([3]))
        result = vector.step(np.array([3]))
        np.testing.assert_array_equal(observation, result.next_observation)
        assert (reward, ended) == (result.reward[0], result.terminated[0])
        picture = player.picture()
        assert picture.shape == (210, 160, 3)
        grey = cv2.resize(cv2.cvtColor(picture, cv2.COLOR_RGB2GRAY), (84, 84), interpolation=cv2.INTER_AREA)
        assert np.abs(grey.astype(int) - observation[0, ..., -1]).mean() < 3, "the same moment"
        assert len(np.unique(picture.reshape(-1, 3), axis=0)) > 5
    player.close()
    vector.close()


def test_several_atari_episodes():
    """A player shows each last frame and then starts again."""
    player, vector = make_player(None, "breakout"), make_atari_vector("breakout", 1, 1)
    draw = np.random.default_rng(0)
    for seed in (1, 2):
        np.testing.assert_array_equal(player.reset(seed), vector.reset([seed]))
        ended = False
        while not ended:
            action = draw.integers(4, size=1)
            observation, _, ended = player.step(action)
            result = vector.step(action)
            np.testing.assert_array_equal(observation, result.next_observation)
            assert ended == result.terminated[0]
    player.close()
    vector.close()
