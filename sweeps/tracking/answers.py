"""What an error of MLflow means for the record that was being sent."""

import re
from enum import Enum


class Answer(Enum):
    """What to do next."""

    LATER = "the store is away or busy: the same record again, after a pause"
    REFUSED = "a definite no to this record: a few tries, then the dead letters"
    GONE = "the run or experiment no longer exists there: start over with this trial"


_BUSY = ("QueuePool limit", "database is locked", "Too many connections", "too many clients")
_REFUSALS = {
    "INVALID_PARAMETER_VALUE",
    "BAD_REQUEST",
    "RESOURCE_ALREADY_EXISTS",
    "ALREADY_EXISTS",
    "RESOURCE_CONFLICT",
    "NOT_IMPLEMENTED",
}
# Not about the record: log in again, ask later, the proxy's page while the server is away.
_ABOUT_THE_SERVER = {401, 403, 404, 407, 408, 425, 429, 499}
# A person deleted the experiment and may restore it; no record is to blame.
_DELETED_EXPERIMENT = re.compile(r"experiment \S+ must be in the 'active' state")
_STATUS = re.compile(r"failed with error code (\d{3})")


def meaning(error: Exception) -> Answer:
    """Classify an error that sending a record raised."""
    import requests
    from mlflow.exceptions import MlflowException
    from sqlalchemy.exc import SQLAlchemyError

    text = str(error)
    # A server whose pool is exhausted answers 400, which says nothing about the record.
    if any(sign in text for sign in _BUSY) or _DELETED_EXPERIMENT.search(text):
        return Answer.LATER
    if isinstance(error, MlflowException):
        if error.error_code == "RESOURCE_DOES_NOT_EXIST":
            return Answer.GONE
        status = _STATUS.search(text)
        if status:
            return _by_status(int(status[1]))
        return Answer.REFUSED if error.error_code in _REFUSALS else Answer.LATER
    if isinstance(error, requests.HTTPError) and error.response is not None:
        return _by_status(error.response.status_code)
    if isinstance(error, (FileNotFoundError, IsADirectoryError, PermissionError)):
        return Answer.REFUSED  # an artifact that cannot be read
    if isinstance(error, (requests.RequestException, SQLAlchemyError, OSError)):
        return Answer.LATER
    return Answer.REFUSED  # the record itself is malformed


def _by_status(status: int) -> Answer:
    definite = 400 <= status < 500 and status not in _ABOUT_THE_SERVER
    return Answer.REFUSED if definite else Answer.LATER
