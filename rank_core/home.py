"""Users without a home folder, as containers have them: `docker run --user 54321`."""

import getpass
import os

NO_HOME = (
    "this user has no home folder (neither HOME nor an entry in /etc/passwd): set RANKSWEEP_CACHE "
    "to a folder that can be written"
)


def has_home() -> bool:
    """False for a user without HOME and without an entry in /etc/passwd, as in containers."""
    return os.path.isabs(os.path.expanduser("~"))


def lend_home() -> None:
    """Gives this process and those that it starts `$RANKSWEEP_CACHE` as the home folder, and a
    user's name, where the user has none: libraries ask for both, some when they are imported."""
    cache = os.environ.get("RANKSWEEP_CACHE")
    if cache and not has_home():
        os.environ["HOME"] = os.path.abspath(cache)
    try:
        getpass.getuser()
    except (KeyError, OSError):
        os.environ["USER"] = f"user-{os.getuid()}"
