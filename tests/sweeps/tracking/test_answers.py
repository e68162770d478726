from mlflow.exceptions import MlflowException
from mlflow.protos.databricks_pb2 import BAD_REQUEST, INVALID_PARAMETER_VALUE

from sweeps.tracking.upload import Answer, meaning


def test_an_exhausted_pool_is_no_refusal_and_an_illegal_value_is():
    pool = MlflowException("QueuePool limit of size 5 overflow 10 reached", BAD_REQUEST)
    assert meaning(pool) is Answer.LATER
    assert meaning(MlflowException("bad name", INVALID_PARAMETER_VALUE)) is Answer.REFUSED
    assert meaning(MlflowException("x failed with error code 413 != 200")) is Answer.REFUSED
    assert meaning(MlflowException("x failed with error code 503 != 200")) is Answer.LATER
    assert meaning(MlflowException("x failed with error code 404 != 200")) is Answer.LATER
    assert meaning(ConnectionError("reset")) is Answer.LATER
    assert meaning(TypeError("float() argument")) is Answer.REFUSED
