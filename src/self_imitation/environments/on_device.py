"""From an environment's name to its pure functions on the device."""

from self_imitation.environments import catalogue
from self_imitation.environments.key_door_treasure import KeyDoorTreasure
from self_imitation.types import Environment


def make(name: str) -> Environment:
    match catalogue.find(name).name:
        case "key-door-treasure":
            return KeyDoorTreasure()
        case "apple-key-door-treasure":
            return KeyDoorTreasure(apples=True)
        case other:
            raise NotImplementedError(f"{other} is in the catalogue but has no implementation here")
