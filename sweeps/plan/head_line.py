"""What becomes of the trained head of a published reranker: a line of plan and report."""

from rank_core.encoders.published_heads import unread_head
from rank_core.models import model_class
from rank_core.models.ranker import Ranker, uses_checkpoint_head
from sweeps.plan.plan import Plan


def used_head(plan: Plan) -> str:
    """What the models of a plan do with the head of its checkpoint, and how a T5 that has none may
    be one; "" for others without one."""
    users, others = _models(plan)
    if not _head(plan):
        return unread_head(plan.inputs.backbone)
    parts = [f"scores the chunks of {', '.join(users)}"] * bool(users) + [_unused(others)] * bool(
        others
    )
    return f"; its trained head ({_head(plan)}) {' and '.join(parts)}" if parts else ""


def unused_head(plan: Plan) -> str:
    """The models of a plan that leave out the head of its checkpoint, in words; "" without such."""
    _, others = _models(plan)
    return f"its trained head ({_head(plan)}) {_unused(others)}" if others else ""


def _head(plan: Plan) -> str:
    return plan.inputs.backbone.trained_head


def _unused(models: list[str]) -> str:
    return f"is not used by {', '.join(models)}, whose heads are new"


def _models(plan: Plan) -> tuple[list[str], list[str]]:
    """(models that use the head of the checkpoint, models that do not)."""
    backbone = plan.inputs.backbone
    if not backbone.trained_head:
        return [], []
    uses = {
        kind.label: uses_checkpoint_head(kind, backbone, cell.config.model.head)
        for cell in plan.cells
        if issubclass(kind := model_class(cell.config.model.name), Ranker)
    }
    return [k for k, used in uses.items() if used], [k for k, used in uses.items() if not used]
