"""Whether something listens at an address; asked before any client that would retry for minutes."""

import socket

PATIENCE_S = 3.0


def unreachable(host: str, port: int) -> str:
    """Why no connection can be made, or nothing."""
    try:
        socket.create_connection((host, port), timeout=PATIENCE_S).close()
    except OSError as error:
        return f"{host}:{port}: {error.strerror or error}"
    return ""
