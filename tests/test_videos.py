"""Episodes as moving pictures: real files, read back."""

import re

import host_probes
import imageio_ffmpeg
import numpy as np
import pytest
from PIL import Image
from self_imitation.runs import host_evaluation
from self_imitation.validation import validate

import self_imitation
from self_imitation.cli.main import main
from self_imitation.config import resolve
from self_imitation.report import animation
from self_imitation.training.evaluation import Episode
from self_imitation.training.loop import Silent
from self_imitation.training.run import start

DRAWN = "gym:host_probes:Drawn-v0"
SETTINGS = {"agent": "a2c", "seeds": 1, "num_envs": 2, "network.hidden": (8,), "steps": 10}


def told(capsys, *arguments: object) -> tuple[int, str, str]:
    status = main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def trained(env, out):
    return start(validate(resolve(env, "authors", {**SETTINGS, "out": str(out)})), Silent())[0]


@pytest.fixture(scope="module")
def pole(tmp_path_factory):
    return trained("gym:CartPole-v1", tmp_path_factory.mktemp("videos") / "pole")


def frames_of(path):
    """What the file holds: its size, its frames per second, and each frame [height, width, 3]."""
    reader = imageio_ffmpeg.read_frames(str(path))
    about = next(reader)
    width, height = about["size"]
    return about, [np.frombuffer(frame, np.uint8).reshape(height, width, 3) for frame in reader]


def durations_of(path):
    with Image.open(path) as picture:
        return [picture.seek(i) or picture.info["duration"] for i in range(picture.n_frames)]


def steps_in(out):
    return int(re.search(r"^(\d+) steps, return (\d+)$", out, re.MULTILINE)[1])


def test_a_video_of_the_pole_shows_the_episode_in_its_own_time(pole, tmp_path, capsys):
    """CartPole draws 50 pictures a second of 600 x 400; every other one is shown, and the end held for 1.5 seconds."""
    status, out, err = told(capsys, "play", pole.path, "--out", tmp_path / "x.mp4")
    assert (status, err) == (0, "")
    assert out.splitlines()[-1] == f"Animation: {tmp_path / 'x.mp4'}"
    steps = steps_in(out)
    about, frames = frames_of(tmp_path / "x.mp4")
    assert about["size"] == (600, 400 + animation.CAPTION_HEIGHT)
    shown = len(pole.play(0).frames)
    rate = 50 * shown_share(pole, steps)
    assert about["fps"] == pytest.approx(rate)
    assert len(frames) == shown + round(1.5 * rate)
    assert not np.array_equal(frames[0], frames[shown - 1]), "something moves"
    still = [np.abs(frame.astype(int) - frames[-1]).mean() for frame in frames[shown:]]
    assert max(still) < 1, "the last picture is held"


def shown_share(pole, steps):
    """One picture in so many steps."""
    steps_shown = list(pole.play(0).frames)
    assert steps_shown[0] == 0
    assert steps_shown[-1] == steps
    return 1 / (steps_shown[1] - steps_shown[0])


def test_a_gif_of_the_pole_takes_as_long_as_the_episode(pole, tmp_path, capsys):
    status, out, _ = told(capsys, "play", pole.path, "--out", tmp_path / "x.gif", "--key", 5)
    assert status == 0
    steps = steps_in(out)
    with Image.open(tmp_path / "x.gif") as picture:
        assert picture.is_animated
        assert picture.size == (320, round(400 * 320 / 600) + animation.CAPTION_HEIGHT + 1), "smaller, with even sides"
    durations = durations_of(tmp_path / "x.gif")
    assert len(durations) == len(pole.play(0, key=5).frames)
    assert durations[-1] == 1500
    assert sum(durations[:-1]) == pytest.approx(1000 * steps / 50, abs=10 * len(durations))


def test_without_a_name_it_is_a_video_in_the_runs_directory(pole, capsys, monkeypatch):
    assert told(capsys, "play", pole.path)[1].endswith(f"Animation: {pole.path}/play.mp4\n")
    assert frames_of(pole.path / "play.mp4")[1]
    monkeypatch.setattr(animation.importlib.util, "find_spec", lambda name: None)
    assert told(capsys, "play", pole.path)[1].endswith(f"Animation: {pole.path}/play.gif\n")
    status, _, err = told(capsys, "play", pole.path, "--out", "x.mp4")
    assert status == 2
    assert "to write MP4, install: pip install 'self-imitation[video]'; allowed: .gif" in err


def test_an_episode_repeats_with_its_key(pole):
    one, same, other = (pole.play(0, key=key) for key in (3, 3, 4))
    np.testing.assert_array_equal(one.observations, same.observations)
    np.testing.assert_array_equal(one.actions, same.actions)
    assert one.observations.shape != other.observations.shape or (one.observations != other.observations).any()
    assert len(one.observations) == len(one.actions) + 1 == len(one.rewards) + 1
    assert one.total == len(one.rewards), "each step pays 1"
    greedy = [pole.play(0, greedy=True, key=7).actions.tolist() for _ in range(2)]
    assert greedy[0] == greedy[1]


def test_what_is_played_is_what_the_policy_does(pole):
    """The observations follow from the actions, in an environment of our own with the same seed."""
    import gymnasium

    episode = pole.play(0, key=9)
    env = gymnasium.make("CartPole-v1")
    seen = [env.reset(seed=9)[0], *(env.step(int(action))[0] for action in episode.actions)]
    np.testing.assert_allclose(episode.observations, seen, rtol=1e-6)


def an_episode(steps, every=1, rate=10.0, size=(41, 30)):
    """Pictures at each `every`-th step and at the end, lighter with each step; the rewards are 1, 2, 3 ..."""
    at = [*range(0, steps, every), steps]
    frames = {step: np.full((size[1], size[0], 3), 200 * step // steps, np.uint8) for step in at}
    nothing = np.zeros((steps + 1, 1))
    return Episode(nothing, nothing[1:], np.arange(1.0, steps + 1), frames, rate)


def test_every_step_is_one_frame_with_even_sides(tmp_path):
    animation.save(an_episode(6), tmp_path / "x.mp4", "title")
    about, frames = frames_of(tmp_path / "x.mp4")
    assert about["size"] == (42, 30 + 22 + 14)
    assert about["fps"] == 10
    assert len(frames) == 7 + 15
    grey = [float(frame[:28, :40].mean()) for frame in frames]
    np.testing.assert_allclose(grey[:7], [0, 33, 66, 100, 133, 166, 200], atol=6)
    np.testing.assert_allclose(grey[7:], 200, atol=6)
    animation.save(an_episode(6), tmp_path / "x.gif", "title")
    assert durations_of(tmp_path / "x.gif") == [100] * 6 + [1500]
    with Image.open(tmp_path / "x.gif") as picture:
        assert picture.size == (42, 66), "a narrow picture has two lines of caption"


def test_pictures_of_every_third_step_are_shown_three_times_as_long(tmp_path):
    """10 steps, pictures at 0, 3, 6, 9 and 10: each up to the next one."""
    animation.save(an_episode(10, every=3), tmp_path / "x.gif", "title")
    assert durations_of(tmp_path / "x.gif") == [300, 300, 300, 100, 1500]
    animation.save(an_episode(10, every=3), tmp_path / "x.mp4", "title")
    about, frames = frames_of(tmp_path / "x.mp4")
    assert about["fps"] == pytest.approx(10 / 3, abs=0.01)
    assert len(frames) == 5 + round(1.5 * 10 / 3)


def test_a_long_gif_leaves_pictures_out_but_no_time(tmp_path):
    animation.save(an_episode(700), tmp_path / "x.gif", "title")
    durations = durations_of(tmp_path / "x.gif")
    assert len(durations) <= 300
    assert sum(durations) == 700 * 100 + 1500


def test_captions_tell_step_and_return(monkeypatch):
    said = []
    monkeypatch.setattr(animation, "_captioned", lambda picture, *caption: said.append(caption) or picture)
    list(animation._pictures(an_episode(3), "ppo, seed 4", [0, 1, 3], None))
    assert said == [("ppo, seed 4", f"step {step}   return {total}") for step, total in ((0, 0), (1, 1), (3, 6))]


def test_a_caption_has_a_line_below_a_wide_picture_and_two_below_a_narrow_one():
    wide, narrow = (animation._captioned(Image.new("RGB", (width, 100)), "a", "b") for width in (400, 160))
    assert (wide.size, narrow.size) == ((400, 122), (160, 136))


def test_text_tells_where_a_few_rewards_came_from():
    episode = an_episode(3)._replace(rewards=np.array([0.0, 2.5, 0.0]))
    assert animation.to_text(episode) == "step  2: reward 2.5\n3 steps, return 2.5"
    assert animation.to_text(an_episode(40)) == "40 steps, return 820"


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    """A run on the probe that draws itself."""
    return trained(DRAWN, tmp_path_factory.mktemp("videos") / "drawn")


def test_odd_pictures_of_a_users_environment(drawn, tmp_path, capsys):
    """Two steps at ten a second."""
    assert told(capsys, "play", drawn.path, "--out", tmp_path / "x.mp4")[0] == 0
    about, frames = frames_of(tmp_path / "x.mp4")
    assert (about["size"], about["fps"], len(frames)) == ((42, 66), 10, 3 + 15)


@pytest.mark.parametrize("name", ["reset", "step"])
def test_a_fault_while_it_is_played_is_one_sentence_that_names_the_environment(
    drawn, name, tmp_path, capsys, monkeypatch
):
    def fail(*_, **__):
        raise ConnectionError("the game server is away")

    monkeypatch.setattr(host_probes.Drawn, name, fail)
    status, _, err = told(capsys, "play", drawn.path, "--out", tmp_path / "x.mp4")
    assert status == 1
    assert err.startswith(f"sil: environment {DRAWN}: it raised ConnectionError: the game server is away")
    assert err.count("\n") == 1


def test_an_episode_that_is_too_long_for_a_film_is_left(drawn, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(host_evaluation, "MOST_FRAMES", 1)
    status, out, err = told(capsys, "play", drawn.path, "--out", tmp_path / "x.gif")
    assert (status, err) == (0, "")
    assert "; left before its end, which is too far away for a film\n" in out
    assert "1 steps, return 1" in out, "of two"
    assert len(durations_of(tmp_path / "x.gif")) == 2


@pytest.mark.parametrize("name", ["x.avi", "x", "x.png"])
def test_a_wrong_ending_is_refused_before_anything_is_played(pole, name, capsys, monkeypatch):
    monkeypatch.setattr(self_imitation.runs.run.Run, "play", lambda *_: pytest.fail("it was played"))
    status, _, err = told(capsys, "play", pole.path, "--out", name)
    assert status == 2
    assert err == f"sil: out: '{name}' is not allowed; allowed: a file name that ends in .gif or .mp4\n"


def test_a_place_that_cannot_be_written_is_told_before_anything_is_played(pole, capsys, monkeypatch):
    monkeypatch.setattr(self_imitation.runs.run.Run, "play", lambda *_: pytest.fail("it was played"))
    status, _, err = told(capsys, "play", pole.path, "--out", "no/where.mp4")
    assert status == 2
    assert "out: 'no/where.mp4' can't be written" in err
