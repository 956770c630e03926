"""Atari preprocessing (paper, section 5.3): skip 4, maximum of two frames, 84 x 84 grey, stacks of 4 frames, up to 30
no-ops, FIRE on reset, no sticky actions; losing a life does not end an episode.
"""

from self_imitation.types import Discrete, Spec

SIDE, STACK, FRAME_SKIP = 84, 4, 4
MAX_FRAMES = 108_000
"""Of an episode: 30 minutes at 60 frames per second, the usual limit. The paper names none."""
MAX_EMULATORS = 1024
"""In one process: each takes up to 0.1 s to start, during which Ctrl-C is not noticed."""


def spec(num_actions: int) -> Spec:
    return Spec(
        (SIDE, SIDE, STACK),
        Discrete(num_actions),
        MAX_FRAMES // FRAME_SKIP,
        observation_kind="image",
        stack=STACK,
    )
