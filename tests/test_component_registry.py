"""Names of learners, bonuses and agents: what is known, what is refused, and how users add their own."""

import pytest

from self_imitation import registry
from self_imitation.algorithm.a2c import A2C
from self_imitation.algorithm.acer import ACER, ACPER
from self_imitation.algorithm.components import Bonus, Exploration, Learner
from self_imitation.algorithm.ppo import PPO
from self_imitation.algorithm.vtrace import VTrace
from self_imitation.errors import UsageError
from self_imitation.exploration.counts import CountBonus
from self_imitation.exploration.cts import CTSBonus
from self_imitation.exploration.pixelcnn import PixelCNNBonus
from self_imitation.exploration.rnd import RandomNetworkDistillation
from self_imitation.exploration.simhash import SimHash
from self_imitation.registry import AgentName, parse_agent, register_bonus, register_learner


class MyLearner(Learner):
    def update(self, actor_critic, optimiser, state, train_state, rollout, exploration, key):
        return state, train_state, {}


class MyBonus(Bonus):
    def init(self, key, num_envs):
        return None

    def update(self, state, rollout, key):
        return state, Exploration(), {}


@pytest.fixture(autouse=True)
def restored(monkeypatch):
    """What a test registers is forgotten after it."""
    for name in ("_learners", "_bonuses"):
        monkeypatch.setattr(registry, name, dict(getattr(registry, name)))


def test_learners_and_bonuses_by_name():
    learners = {name: entry.component for name, entry in registry.learners().items()}
    bonuses = {name: entry.component for name, entry in registry.bonuses().items()}
    assert learners == {"a2c": A2C, "ppo": PPO, "vtrace": VTrace, "acer": ACER, "acper": ACPER}
    counting = {"exp": CountBonus, "simhash": SimHash, "cts": CTSBonus, "pixelcnn": PixelCNNBonus}
    assert bonuses == {"rnd": RandomNetworkDistillation, **counting}
    assert registry.components().keys() == learners.keys() | bonuses.keys()


@pytest.mark.parametrize("component", [A2C, PPO, VTrace, ACER, ACPER])
def test_learners_have_a_discount(component):
    assert 0 < component.Config().gamma <= 1


def test_names_are_taken_apart():
    name = parse_agent("ppo+sil+exp")
    assert (name.learner, name.self_imitation, name.bonuses) == ("ppo", True, ("exp",))
    assert name.components == ("ppo", "exp")
    assert parse_agent("a2c") == AgentName("a2c", False, ())


@pytest.mark.parametrize("name", ["a2c+sil+exp+rnd", "a2c+rnd+exp+sil", "a2c+exp+sil+rnd"])
def test_the_order_of_parts_after_the_learner_does_not_matter(name):
    assert str(parse_agent(name)) == "a2c+sil+exp+rnd"


@pytest.mark.parametrize(
    "name", ["", "a3c", "A2C", "sil", "exp+a2c", "a2c+", "a2c+ppo", "a2c+a2c", "a2c+sli", "a2c sil"]
)
def test_unknown_agents_are_refused_by_name(name):
    with pytest.raises(UsageError, match="agent: ") as error:
        parse_agent(name)
    assert repr(name) in str(error.value)


def test_the_nearest_known_agent_is_suggested():
    with pytest.raises(UsageError, match=r"did you mean 'a2c\+sil'\?"):
        parse_agent("a2c+sli")


@pytest.mark.parametrize("name", ["a2c+sil+sil", "a2c+exp+sil+exp"])
def test_parts_named_twice_are_refused(name):
    with pytest.raises(UsageError, match="twice"):
        parse_agent(name)


def test_users_can_register_a_learner_and_a_bonus():
    register_learner("mine", MyLearner, "my own learner")
    register_bonus("novel", MyBonus, "my own bonus")
    assert str(parse_agent("mine+novel+sil")) == "mine+sil+novel"
    assert registry.components()["mine"].component is MyLearner
    assert registry.agents()["mine+sil+novel"] == "my own learner with self-imitation and my own bonus"


def test_a_name_cannot_be_registered_for_another_component():
    with pytest.raises(UsageError, match="'a2c' is already registered for A2C"):
        register_learner("a2c", MyLearner, "another one")
    with pytest.raises(UsageError, match="'exp' is already registered for CountBonus"):
        register_bonus("exp", MyBonus, "another one")
    assert registry.learners()["a2c"].component is A2C


def test_learners_and_bonuses_share_one_set_of_names():
    with pytest.raises(UsageError, match="'exp' is already registered for CountBonus"):
        register_learner("exp", MyLearner, "a learner")
    with pytest.raises(UsageError, match="'ppo' is already registered for PPO"):
        register_bonus("ppo", MyBonus, "a bonus")


def test_registering_the_same_component_again_is_fine():
    register_learner("mine", MyLearner, "first")
    register_learner("mine", MyLearner, "second")
    assert registry.learners()["mine"].summary == "second"


@pytest.mark.parametrize("name", ["sil", "", "two words", "a+b", "a-b", "1st", "a.b"])
def test_names_that_cannot_be_part_of_an_agents_name_are_refused(name):
    with pytest.raises(UsageError, match="is not allowed"):
        register_learner(name, MyLearner, "a learner")
    with pytest.raises(UsageError, match="is not allowed"):
        register_bonus(name, MyBonus, "a bonus")


def test_agents_lists_each_learner_with_and_without_the_other_parts():
    agents = registry.agents()
    learners, alone, bonuses = len(registry.learners()), ("acer", "acper"), len(registry.bonuses())
    assert len(agents) == 2 * ((learners - len(alone)) * (1 + bonuses) + len(alone))
    assert agents["a2c"] == "advantage actor-critic"
    assert agents["a2c+sil+exp"] == "advantage actor-critic with self-imitation and a count-based bonus"
    assert all(str(parse_agent(name)) == name for name in agents)


@pytest.mark.parametrize("name", ["acer+exp", "acper+sil+rnd"])
def test_replayed_rewards_have_no_bonus(name):
    with pytest.raises(UsageError, match=r"stored rewards have no bonus.*; allowed: (\w+), \1\+sil$"):
        parse_agent(name)
    assert name not in registry.agents()
