"""ale-py's emulators against a plain pipeline on one `ALEInterface`."""

import ale_py
import cv2
import numpy as np
import pytest
from ale_py import roms

from self_imitation.environments.gymnasium.vector import make_atari_vector
from self_imitation.types import Discrete, Spec


class Twin:
    """The paper's preprocessing, frame by frame. A frame at which the game is over is not shown: then the maximum is
    that of the step before, and if the third frame came before the end, of that one too.
    """

    def __init__(self, rom, seed):
        ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
        self.ale = ale_py.ALEInterface()
        self.ale.setFloat("repeat_action_probability", 0.0)
        self.ale.setInt("random_seed", seed)
        self.ale.loadROM(roms.get_rom_path(rom))
        self.actions = self.ale.getMinimalActionSet()

    def reset(self, frames):
        """FIRE if the game has it, then the no-ops that the other emulator drew with its own random numbers."""
        self.ale.reset_game()
        if ale_py.Action.FIRE in self.actions:
            self.ale.act(ale_py.Action.FIRE)
        while self.ale.getEpisodeFrameNumber() < frames:
            self.ale.act(ale_py.Action.NOOP)
        self.last = self.ale.getScreenGrayscale()
        self.last_but_one = np.zeros_like(self.last)
        self.stack = [np.zeros((84, 84), np.uint8)] * 3 + [self._small(self.last)]
        return np.stack(self.stack, axis=-1)

    def step(self, action):
        reward = 0
        for frame in range(4):
            reward += self.ale.act(self.actions[action])
            if self.ale.game_over():
                break
            if frame == 2:
                self.last_but_one = self.ale.getScreenGrayscale()
            if frame == 3:
                self.last = self.ale.getScreenGrayscale()
        self.last = np.maximum(self.last, self.last_but_one)
        self.stack = [*self.stack[1:], self._small(self.last)]
        return np.stack(self.stack, axis=-1), reward, self.ale.game_over()

    def _small(self, screen):
        return cv2.resize(screen, (84, 84), interpolation=cv2.INTER_AREA)


def with_frame_numbers(vector):
    """Records the emulators' frame numbers at each call, which say how many no-ops a reset drew."""
    numbers = []

    def recorded(call):
        def wrapper(*args, **kwargs):
            result = call(*args, **kwargs)
            numbers.append(result[-1]["episode_frame_number"])
            return result

        return wrapper

    vector.env.reset, vector.env.step = recorded(vector.env.reset), recorded(vector.env.step)
    return numbers


@pytest.mark.parametrize("rom", ["breakout", "space_invaders", "montezuma_revenge", "pong"])
def test_every_frame_reward_and_end_is_that_of_a_plain_pipeline(rom):
    vector = make_atari_vector(rom, 2, 2)
    numbers = with_frame_numbers(vector)
    twins = [Twin(rom, seed) for seed in (7, 8)]
    seen = vector.reset([7, 8])
    for row, twin in enumerate(twins):
        np.testing.assert_array_equal(seen[row], twin.reset(numbers[-1][row]))
    generator, ends = np.random.default_rng(0), 0
    for _ in range(500):
        action = generator.integers(len(twins[0].actions), size=2)
        result = vector.step(action)
        for row, twin in enumerate(twins):
            stack, reward, ended = twin.step(action[row])
            np.testing.assert_array_equal(result.next_observation[row], stack)
            assert (result.reward[row], result.terminated[row]) == (reward, ended)
            after = twin.reset(numbers[-1][row]) if ended else stack
            np.testing.assert_array_equal(result.observation[row], after)
            ends += ended
    vector.close()
    assert ends > 0 or rom == "pong", "losing a life does not end an episode, losing the game does"


def test_spec():
    vector = make_atari_vector("pong", 3, 1)
    assert vector.spaces.spec == Spec((84, 84, 4), Discrete(6), 27_000, observation_kind="image", stack=4)
    observation = vector.reset([1, 2, 3])
    assert (observation.shape, observation.dtype) == ((3, 84, 84, 4), np.uint8)
    assert not vector.can_snapshot
    vector.close()


def test_observations_are_not_overwritten():
    vector = make_atari_vector("breakout", 2, 1)
    first = vector.reset([1, 2])
    kept = first.copy()
    for _ in range(10):
        vector.step(np.array([1, 2]))
    np.testing.assert_array_equal(first, kept)
    vector.close()
