"""Episodes as videos and text: real files, read back."""

import imageio_ffmpeg
import numpy as np
import pytest
from PIL import Image

from self_imitation.environments.jax import maze
from self_imitation.errors import UsageError
from self_imitation.report import animation
from self_imitation.report.animation import Episode


def episode_of(steps, every=1, rate=10.0, size=(41, 30)):
    """Pictures at each `every`-th step and at the end, lighter with each step; the rewards are 1, 2, 3 ..."""
    at = [*range(0, steps, every), steps]
    frames = {step: np.full((size[1], size[0], 3), 200 * step // steps, np.uint8) for step in at}
    nothing = np.zeros((steps + 1, 1))
    return Episode(nothing, nothing[1:], np.arange(1.0, steps + 1), frames, rate)


def frames_of(path):
    """Metadata of a video, and each frame [height, width, 3]."""
    reader = imageio_ffmpeg.read_frames(str(path))
    about = next(reader)
    width, height = about["size"]
    return about, [np.frombuffer(frame, np.uint8).reshape(height, width, 3) for frame in reader]


def durations_of(path):
    with Image.open(path) as picture:
        return [picture.seek(i) or picture.info["duration"] for i in range(picture.n_frames)]


def test_every_step_is_one_frame_with_even_sides(tmp_path):
    animation.save(episode_of(6), tmp_path / "x.mp4", "title")
    about, frames = frames_of(tmp_path / "x.mp4")
    assert about["size"] == (42, 30 + 22 + 14)
    assert about["fps"] == 10
    assert len(frames) == 7 + 15, "the last frame is held for 1.5 seconds"
    grey = [float(frame[:28, :40].mean()) for frame in frames]
    np.testing.assert_allclose(grey[:7], [0, 33, 66, 100, 133, 166, 200], atol=6)
    np.testing.assert_allclose(grey[7:], 200, atol=6)
    animation.save(episode_of(6), tmp_path / "x.gif", "title")
    assert durations_of(tmp_path / "x.gif") == [100] * 6 + [1500]
    with Image.open(tmp_path / "x.gif") as picture:
        assert picture.size == (42, 66)


def test_frames_last_until_the_next_one(tmp_path):
    """10 steps, pictures at 0, 3, 6, 9 and 10."""
    animation.save(episode_of(10, every=3), tmp_path / "x.gif", "title")
    assert durations_of(tmp_path / "x.gif") == [300, 300, 300, 100, 1500]
    animation.save(episode_of(10, every=3), tmp_path / "x.mp4", "title")
    about, frames = frames_of(tmp_path / "x.mp4")
    assert about["fps"] == pytest.approx(10 / 3, abs=0.01)
    assert len(frames) == 5 + round(1.5 * 10 / 3)


def test_a_long_gif_drops_frames_but_keeps_its_duration(tmp_path):
    animation.save(episode_of(700), tmp_path / "x.gif", "title")
    durations = durations_of(tmp_path / "x.gif")
    assert len(durations) <= 300
    assert sum(durations) == 700 * 100 + 1500


def test_captions_show_step_and_return(monkeypatch):
    captions = []
    monkeypatch.setattr(animation, "_captioned", lambda picture, *caption: captions.append(caption) or picture)
    list(animation._pictures(episode_of(3), "ppo, seed 4", [0, 1, 3], None))
    assert captions == [("ppo, seed 4", f"step {step}   return {total}") for step, total in ((0, 0), (1, 1), (3, 6))]


def test_a_caption_takes_two_lines_below_a_narrow_picture():
    wide, narrow = (animation._captioned(Image.new("RGB", (width, 100)), "a", "b") for width in (400, 160))
    assert (wide.size, narrow.size) == ((400, 122), (160, 136))


def test_text_lists_a_few_rewards():
    episode = episode_of(3)._replace(rewards=np.array([0.0, 2.5, 0.0]))
    assert animation.to_text(episode) == "step  2: reward 2.5\n3 steps, return 2.5"
    assert animation.to_text(episode_of(40)) == "40 steps, return 820"
    assert animation.to_text(episode._replace(ended=False)).endswith(
        "3 steps, return 2.5; stopped before the end of the episode, which is too long for a video"
    )


def test_text_follows_the_path_through_a_maze():
    observations = np.array([[2, 8, 1, 1, 1], [3, 8, 1, 1, 1], [3, 9, 1, 1, 1]], np.float32)
    episode = Episode(observations, np.array([1, 2]), np.array([0.0, 1.0]), {}, 8.0)
    assert animation.maze_text(episode).splitlines()[8][2:4] == "→↓"
    assert animation.to_text(episode).splitlines() == ["step  2: reward 1", "2 steps, return 1"]


@pytest.mark.parametrize("name", ["x.avi", "x", "x.png"])
def test_other_formats_are_refused(tmp_path, name):
    with pytest.raises(UsageError, match=r"allowed: a file name that ends in \.gif or \.mp4"):
        animation.require_format(tmp_path / name)


def test_without_ffmpeg_gif_is_the_default_and_mp4_names_the_package(tmp_path, monkeypatch):
    assert animation.default_name() == "play.mp4"
    monkeypatch.setattr(animation.importlib.util, "find_spec", lambda name: None)
    assert animation.default_name() == "play.gif"
    with pytest.raises(UsageError, match=r"MP4 needs a package: pip install 'self-imitation\[video\]'"):
        animation.require_format(tmp_path / "x.mp4")


def test_maze_as_text_shows_what_is_still_there():
    text = maze.to_text(np.array([2, 8, 1, 1, 1, 1, 0], np.float32)).splitlines()
    assert text[8][2] == "@"
    assert (text[11][11], text[6][11], text[1][7], text[2][4], text[4][2]) == ("K", "D", "T", "a", ".")
    assert sum(line.count("a") for line in text) == 1


def test_maze_as_pixels_changes_where_the_agent_moves():
    before = maze.to_pixels(np.array([2, 8, 1, 1, 1]))
    after = maze.to_pixels(np.array([3, 8, 1, 1, 1]))
    assert before.shape == (13 * 24, 13 * 24, 3)
    assert before.dtype == np.uint8
    rows, columns = np.nonzero((before != after).any(axis=2))
    assert (rows.min() // 24, rows.max() // 24) == (8, 8)
    assert (columns.min() // 24, columns.max() // 24) == (2, 3)
