"""What every layer of an encoder leaves of its input rows."""

from torch import Tensor, nn

from rank_core.chunking.batches import EncoderInput


def layer_states(encoder: nn.Module, inputs: EncoderInput) -> tuple[Tensor, ...]:
    """hidden_CLH of the embeddings and of every layer."""
    segments = inputs.token_type_ids_CL
    output = encoder(
        input_ids=inputs.input_ids_CL,
        attention_mask=inputs.attention_mask_CL,
        output_hidden_states=True,
        **({} if segments is None else {"token_type_ids": segments}),
    )
    # Some encoders normalise what leaves the last layer, and some pad rows to whole blocks.
    states = (*output.hidden_states[:-1], output.last_hidden_state)
    return tuple(hidden_CLH[:, : inputs.input_ids_CL.shape[1]] for hidden_CLH in states)
