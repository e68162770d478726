"""The answer of a sweep over chunk sizes."""

USUAL = ((512, 0.0), (256, 0.5))
"""Windows and overlaps in common use."""


def usual_label(window: int, overlap: float) -> str:
    """`256/50%`: the label of windows that end anywhere, without titles."""
    return f"{window}/{100 * overlap:g}%"
