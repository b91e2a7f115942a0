"""The command line: ``ttabench``, and ``python -m ttabench``.

Ctrl-C during its imports, or once more while it ends, is no traceback.
"""

import os
import signal
import sys

INTERRUPTED = 130


def main() -> None:
    code: object = INTERRUPTED
    try:
        from ttabench.cli import main as command

        command()
    except KeyboardInterrupt:
        pass
    except SystemExit as leaving:
        code = leaving.code
    if code == INTERRUPTED:  # Python waits for threads now; once more means not to
        signal.signal(signal.SIGINT, lambda *_: os._exit(INTERRUPTED))
    sys.exit(code)  # type: ignore[arg-type]


if __name__ == "__main__":
    main()
