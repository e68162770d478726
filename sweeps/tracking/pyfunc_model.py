"""The script that MLflow loads a registered model by: `predict` takes rows of `query` and
`document`, texts, and gives each row its `score`. MLflow runs it; nothing imports it."""

from typing import Any

import mlflow
import pandas as pd
from mlflow.pyfunc.model import PythonModel


class RerankerModel(PythonModel):
    """An exported folder behind MLflow's interface."""

    def load_context(self, context: Any) -> None:
        """Loads the folder that the model carries."""
        from rank_core.export.reranker import Reranker

        self.reranker = Reranker.load(context.artifacts["model"])

    def predict(
        self, context: Any, model_input: pd.DataFrame, params: dict[str, Any] | None = None
    ) -> pd.DataFrame:
        """The score of each row, under the row's index."""
        scores = pd.Series(index=model_input.index, dtype=float)
        for query, rows in model_input.groupby("query", sort=False):
            ranked = self.reranker.rank(str(query), rows["document"].tolist())
            for place, score in ranked:
                scores[rows.index[place]] = score
        return scores.to_frame("score")


mlflow.models.set_model(RerankerModel())
