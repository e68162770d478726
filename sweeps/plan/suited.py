"""What a model needs of the settings to run over a backbone, and what it is then called."""

from rank_core.encoders.backbone_types import Backbone
from rank_core.errors import BadInput
from rank_core.models import check_model, model_class
from rank_core.models.list_rankers import ListRanker
from rank_core.settings.config import TrialConfig
from sweeps.plan.experiment import Settings


def suited(config: TrialConfig, backbone: Backbone) -> Settings:
    """Windows for a model that was named without any, the first of these that it accepts: the
    settings' own, half-overlapping ones that fit, disjoint ones as long as fit, a document in one
    piece, as much of it as fits. Nothing where it accepts none: the reason is then that of the
    settings' own."""
    chunking = config.chunking
    longest = backbone.max_window(chunking.max_query_tokens)
    two_thirds = longest * 2 // 3
    whole = min(longest, chunking.max_document_tokens)
    choices: tuple[Settings, ...] = (
        {},
        _windows(two_thirds, two_thirds * 3 // 4),
        _windows(longest, longest),
        _windows(chunking.max_document_tokens, chunking.max_document_tokens),
        _windows(whole, whole) | {"chunking.max_document_tokens": whole},
    )
    return next((choice for choice in choices if _accepted(config, choice, backbone)), {})


def _accepted(config: TrialConfig, choice: Settings, backbone: Backbone) -> bool:
    try:
        check_model(config.override(choice), backbone)
    except BadInput:
        return False
    return True


def _windows(window: int, stride: int) -> dict[str, int]:
    return {"chunking.window": window, "chunking.stride": stride}


def model_and_windows(config: TrialConfig) -> str:
    """`MaxP 150/75`; one number where windows do not overlap or there is one only."""
    model, chunking = model_class(config.model.name), config.chunking
    if issubclass(model, ListRanker):
        return model.label
    stride = "" if chunking.stride == chunking.window else f"/{chunking.stride}"
    return f"{model.label} {chunking.window}{stride}"
