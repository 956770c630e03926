"""Films: which pictures they show, and with which rewards."""

import base64
import io

import numpy as np
from numpy.testing import assert_array_equal
from PIL import Image

from self_imitation.recording import films
from self_imitation.recording.films import Camera


def picture_of(film, number):
    _, _, content = film["image"].partition(",")
    sheet = np.asarray(Image.open(io.BytesIO(base64.b64decode(content))).convert("L"))
    row, column = divmod(number, film["columns"])
    height, width = film["height"], film["width"]
    return sheet[row * height : (row + 1) * height, column * width : (column + 1) * width]


def test_a_strip_shows_the_rewards_and_the_ends():
    rewards = np.zeros(1000)
    rewards[[3, 500, 501]] = 1
    steps = films.chosen_steps(rewards, 24)
    assert len(steps) <= 24
    assert {0, 3, 500, 501, 999} <= set(steps.tolist())
    assert len(films.chosen_steps(np.ones(1000), 24)) <= 24
    assert_array_equal(films.chosen_steps(np.zeros(5), 24), np.arange(5))


def test_each_picture_is_at_its_place_with_the_reward_until_the_next():
    pictures = np.stack([np.full((8, 6), 20 * number, np.uint8) for number in range(10)])
    film = films.to_json(pictures, np.arange(0, 20, 2), np.arange(20.0))
    assert (film["width"], film["height"], film["columns"]) == (6, 8, 8)
    for number in (0, 7, 8, 9):
        assert abs(picture_of(film, number).mean() - 20 * number) < 4
    assert film["rewards"] == [4 * k + 1 for k in range(10)]
    assert film["returns"][-1] == sum(range(20))


def test_a_camera_keeps_pictures_at_even_intervals_and_the_end():
    now = [0]
    camera = Camera(lambda: np.full((4, 4, 3), now[0], np.uint8), 8, expected_steps=0)
    for step in range(101):
        now[0] = step
        camera.look(step)
    now[0] = 101
    film = camera.film(np.ones(101))
    assert film["steps"] == [0, 16, 32, 48, 64, 80, 96, 101]
    assert film["returns"] == [16, 32, 48, 64, 80, 96, 101, 101]
    assert film["rewards"] == [16, 16, 16, 16, 16, 16, 5, 0]


def test_a_camera_that_knows_the_length_takes_no_more_pictures_than_it_keeps():
    taken = []
    camera = Camera(lambda: taken.append(1) or np.zeros((4, 4, 3), np.uint8), 8, expected_steps=800)
    for step in range(800):
        camera.look(step)
    assert len(taken) == 8


def test_wide_pictures_are_made_smaller():
    film = films.to_json(np.zeros((2, 300, 600, 3), np.uint8), np.array([0, 1]), np.zeros(1))
    assert (film["width"], film["height"]) == (240, 120)
