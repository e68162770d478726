"""The chat server of the library's tests stands in another folder."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "rank_core" / "llm"))
