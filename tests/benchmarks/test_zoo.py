"""The recipes under which the systems of the zoo learn."""

from rank_core.models import MODELS
from rank_core.settings.config import TrialConfig
from tests.benchmarks.zoo import RECIPES


def test_a_recipe_has_settings_of_a_model_and_a_reason():
    for name, (settings, why) in RECIPES.items():
        assert name in MODELS and settings and why
        TrialConfig().override(settings | {"model.name": name})
