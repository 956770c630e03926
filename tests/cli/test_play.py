"""`sil play` with Gymnasium environments: real files, read back."""

import re

import gymnasium
import gymnasium_probes
import imageio_ffmpeg
import numpy as np
import pytest
from PIL import Image

from self_imitation.cli.main import main
from self_imitation.report import animation
from self_imitation.training import evaluation
from self_imitation.training.run import train
from self_imitation.training.saved_run import Run

DRAWN = "gym:gymnasium_probes:Drawn-v0"
SMALL = {"num_envs": 2, "network.hidden": (8,)}


def call(capsys, *arguments: object) -> tuple[int, str, str]:
    status = main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


@pytest.fixture(scope="module")
def pole(tmp_path_factory):
    return train("gym:CartPole-v1", "a2c", steps=10, seeds=1, out=tmp_path_factory.mktemp("pole"), settings=SMALL)


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    return train(DRAWN, "a2c", steps=10, seeds=1, out=tmp_path_factory.mktemp("drawn"), settings=SMALL)


def video(path):
    reader = imageio_ffmpeg.read_frames(str(path))
    about = next(reader)
    return about, sum(1 for _ in reader)


def durations(path):
    with Image.open(path) as picture:
        return [picture.seek(i) or picture.info["duration"] for i in range(picture.n_frames)]


def test_a_video_of_cartpole_runs_in_real_time(pole, capsys):
    """CartPole is drawn at 600 x 400 and has 50 steps per second, of which every other one is shown."""
    status, out, err = call(capsys, "play", pole.path)
    assert (status, err) == (0, "")
    assert out.splitlines()[-1] == f"Animation: {pole.path}/play.mp4", "the default"
    about, frames = video(pole.path / "play.mp4")
    assert about["size"] == (600, 400 + animation.CAPTION_HEIGHT)
    assert about["fps"] == pytest.approx(25)
    assert frames == len(pole.play(0).frames) + round(1.5 * 25)


def test_a_gif_of_cartpole_takes_as_long_as_the_episode(pole, tmp_path, capsys):
    status, out, _ = call(capsys, "play", pole.path, "--out", tmp_path / "x.gif", "--key", 5)
    assert status == 0
    steps = int(re.search(r"^(\d+) steps, return \d+$", out, re.MULTILINE)[1])
    with Image.open(tmp_path / "x.gif") as picture:
        assert picture.size == (320, round(400 * 320 / 600) + animation.CAPTION_HEIGHT + 1), "smaller, with even sides"
    shown = durations(tmp_path / "x.gif")
    assert len(shown) == len(pole.play(0, key=5).frames)
    assert shown[-1] == 1500
    assert sum(shown[:-1]) == pytest.approx(1000 * steps / 50, abs=10 * len(shown))


def test_an_episode_repeats_with_its_key(pole):
    one, same, other = (pole.play(0, key=key) for key in (3, 3, 4))
    np.testing.assert_array_equal(one.observations, same.observations)
    np.testing.assert_array_equal(one.actions, same.actions)
    assert one.observations.shape != other.observations.shape or (one.observations != other.observations).any()
    assert len(one.observations) == len(one.actions) + 1 == len(one.rewards) + 1
    assert one.total == len(one.rewards), "each step pays 1"


def test_the_observations_follow_from_the_actions(pole):
    episode = pole.play(0, key=9)
    env = gymnasium.make("CartPole-v1")
    seen = [env.reset(seed=9)[0], *(env.step(int(action))[0] for action in episode.actions)]
    np.testing.assert_allclose(episode.observations, seen, rtol=1e-6)


def test_odd_pictures_of_a_users_environment(drawn, tmp_path, capsys):
    assert call(capsys, "play", drawn.path, "--out", tmp_path / "x.mp4")[0] == 0
    about, frames = video(tmp_path / "x.mp4")
    assert (about["size"], about["fps"], frames) == ((42, 66), 10, 3 + 15), "two steps at ten per second"


def test_an_episode_that_is_too_long_for_a_video_is_cut(drawn, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(evaluation, "MAX_FRAMES", 1)
    status, out, err = call(capsys, "play", drawn.path, "--out", tmp_path / "x.gif")
    assert (status, err) == (0, "")
    assert "1 steps, return 1; stopped before the end of the episode, which is too long for a video\n" in out
    assert len(durations(tmp_path / "x.gif")) == 2


@pytest.mark.parametrize("name", ["reset", "step"])
def test_a_faulty_environment_is_named_in_one_line(drawn, name, tmp_path, capsys, monkeypatch):
    def fail(*_, **__):
        raise ConnectionError("the game server is away")

    monkeypatch.setattr(gymnasium_probes.Drawn, name, fail)
    status, _, err = call(capsys, "play", drawn.path, "--out", tmp_path / "x.mp4")
    assert status == 1
    assert "ConnectionError: the game server is away" in err
    assert "Drawn" in err
    assert err.count("\n") == 1


@pytest.mark.parametrize("name", ["x.avi", "no/where.mp4"])
def test_bad_files_are_refused_before_playing(pole, name, capsys, monkeypatch):
    monkeypatch.setattr(Run, "play", lambda *_: pytest.fail("it was played"))
    status, _, err = call(capsys, "play", pole.path, "--out", name)
    assert status == 2
    assert f"out: '{name}'" in err
