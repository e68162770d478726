"""The script with which MLflow loads a registered model: `predict` maps rows of texts `query` and
`document` to a `score` each. MLflow runs it; nothing imports it.
"""

from typing import Any

import mlflow
import pandas as pd
from mlflow.pyfunc.model import PythonModel


class RerankerModel(PythonModel):
    """An exported folder behind MLflow's interface."""

    def load_context(self, context: Any) -> None:
        """Load the folder within the model."""
        from rank_core.export.reranker import Reranker

        # MLflow runs the code of a model that it loads: this script, for one.
        self.reranker = Reranker.load(context.artifacts["model"], trust_code=True)

    def predict(
        self, context: Any, model_input: pd.DataFrame, params: dict[str, Any] | None = None
    ) -> pd.DataFrame:
        """The score of each row, under the row's index."""
        scores = pd.Series(index=model_input.index, dtype=float)
        for query, rows in model_input.groupby("query", sort=False, observed=True):
            ranked = self.reranker.rank(str(query), rows["document"].tolist())
            for place, score in ranked:
                scores[rows.index[place]] = score
        return scores.to_frame("score")


mlflow.models.set_model(RerankerModel())
