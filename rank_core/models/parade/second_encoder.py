"""What models share that have a second encoder, over vectors."""

from torch import nn

from rank_core.errors import BadInput
from rank_core.models.parade.parade import Parade
from rank_core.models.parade.vector_sequence import (
    most_vectors,
    output_size,
    pretrained_body,
    random_body,
)
from rank_core.settings.config import Model, TrialConfig


class SecondEncoder(Parade):
    """A PARADE variant whose settings may name encoders beside the backbone."""

    paper = "Boytsov et al. 2022"
    one_chunk_is_firstp = False

    def body(self, setting: str, settings: Model) -> nn.Module:
        """The encoder that a setting of `Model` names; where it names none, two layers of the
        backbone's width with random weights."""
        name = getattr(settings, setting)
        if name:
            return pretrained_body(f"model.{setting}", name, settings.dropout)
        return random_body(self.head.in_features, 2, 4, settings.dropout)

    def head_over(self, body: nn.Module) -> nn.Linear:
        """A head over a body's output, with Xavier weights."""
        head = nn.Linear(output_size(body), 1)
        nn.init.xavier_uniform_(head.weight)
        return head

    @classmethod
    def refuse_longer(cls, config: TrialConfig, setting: str, places: int, what: str) -> None:
        """Refuses sequences of more `places` than the encoder that a setting names has."""
        name = getattr(config.model, setting)
        limit = most_vectors(f"model.{setting}", name)
        if places > limit:
            raise BadInput(
                f"model.{setting}={name or '(two random layers)'} has {limit} places, and {what} "
                f"may take {places}; lower chunking.max_chunks or chunking.window, or raise "
                "chunking.stride"
            )
