"""Estimators and value models by name, ours and those of others."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from coral_pipeline.credit import Constant, CreditSettings, DirectBranchTd, Grpo, HttpCritic, prepare
from coral_pipeline.credit.named import estimator_named, value_model_named
from coral_pipeline.errors import BadInput
from coral_pipeline.settings import GrpoSettings, HttpCriticSettings
from coral_pipeline_tests.trees import N, explored

SETTINGS = CreditSettings(prior=0.5, grpo=GrpoSettings(std_offset=0.1), http=HttpCriticSettings(url="http://critic"))

RECIPES = """
from coral_pipeline.credit import Constant, Estimator, ValueModel

class RewardOnly(Estimator):
    def advantages(self, edges, values):
        return [edge.reward for edge in edges]

class Doubled(ValueModel):
    @classmethod
    def from_settings(cls, settings):
        model = cls()
        model.value = 2 * settings.prior
        return model

    def predict(self, checkpoints):
        return [self.value for _ in checkpoints]

class Unfinished(Estimator):
    pass

ready = Constant(7.0)
nothing = 3
"""
ENTRY_POINTS = """
[coral_pipeline.estimators]
reward_only = my_recipes:RewardOnly
gone = my_recipes:Gone

[coral_pipeline.value_models]
doubled = my_recipes:Doubled
"""


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A distribution as pip installs it, with a module and entry points of its own."""
    (tmp_path / "my_recipes.py").write_text(RECIPES)
    info = tmp_path / "my_recipes-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: my-recipes\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(ENTRY_POINTS)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    sys.modules.pop("my_recipes", None)


def test_ours_are_entry_points_like_any_other_and_take_their_settings() -> None:
    assert isinstance(estimator_named("direct_branch_td", SETTINGS), DirectBranchTd)
    grpo = estimator_named("grpo", SETTINGS)
    assert isinstance(grpo, Grpo)
    assert grpo.settings.std_offset == 0.1
    constant, http = value_model_named("constant", SETTINGS), value_model_named("http", SETTINGS)
    assert isinstance(constant, Constant)
    assert constant.value == 0.5
    assert isinstance(http, HttpCritic)
    assert http.settings.url == "http://critic"


@pytest.mark.usefixtures("installed")
def test_an_installed_recipe_and_value_model_by_name() -> None:
    recipe, model = estimator_named("reward_only", SETTINGS), value_model_named("doubled", SETTINGS)
    batch = prepare(explored([N(score=1.0), N(0, 2.0)]), recipe, value_model=model)
    (row,) = batch.edge_table().to_pylist()
    assert (row["estimator"], row["advantage"]) == ("RewardOnly", 0.5)
    assert (batch.value_model, batch.critic_table()["prior"].to_pylist()) == ("Doubled", [1.0, 0.0])


@pytest.mark.usefixtures("installed")
def test_module_and_attribute_may_name_a_class_or_an_instance() -> None:
    assert type(estimator_named("my_recipes:RewardOnly", SETTINGS)).__name__ == "RewardOnly"
    model = value_model_named("my_recipes:ready", SETTINGS)
    assert isinstance(model, Constant)
    assert model.value == 7.0


@pytest.mark.usefixtures("installed")
def test_an_unknown_name_is_told_with_those_there_are() -> None:
    with pytest.raises(
        BadInput, match="estimator 'ppo': is not known; there is direct_branch_td, gone, grpo, reward_only"
    ):
        estimator_named("ppo", SETTINGS)
    with pytest.raises(BadInput, match="value model 'oracle': is not known; there is constant, doubled, http"):
        value_model_named("oracle", SETTINGS)


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("gone", "cannot be loaded from my_recipes:Gone"),
        ("no_such_module:x", "cannot be loaded from no_such_module:x"),
        ("my_recipes:Missing", "cannot be loaded"),
        ("my_recipes:nothing", "my_recipes:nothing is no Estimator that could be used"),
        ("my_recipes:Doubled", "is no Estimator that could be used"),
        ("my_recipes:Unfinished", "is no Estimator that could be used"),
        ("constant", "is not known"),
        (":", "is not known"),
        ("", "is not known"),
    ],
)
def test_what_cannot_be_an_estimator_is_refused_by_name(name: str, problem: str) -> None:
    with pytest.raises(BadInput, match=f"estimator '{name}': .*{problem}"):
        estimator_named(name, SETTINGS)


def test_a_name_that_two_distributions_give_is_refused(installed: Path) -> None:
    info = installed / "rival-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: rival\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[coral_pipeline.estimators]\nreward_only = rival:RewardOnly\n")
    with pytest.raises(
        BadInput, match="provided twice, as my_recipes:RewardOnly and rival:RewardOnly; use module:attribute"
    ):
        estimator_named("reward_only", SETTINGS)
