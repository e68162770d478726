"""The names of the corrections, for whoever computes none."""

MAX_T, HOLM, NONE = "max-t", "holm", "none"
CORRECTION_NAMES = {
    MAX_T: "max-t",
    HOLM: "Holm",
    "bh": "Benjamini-Hochberg (exploratory)",
    NONE: "no correction",
}
"""{correction: its name in captions}."""
