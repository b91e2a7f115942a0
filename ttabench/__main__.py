"""The command line: ``ttabench``, and ``python -m ttabench``.

Ctrl-C during its imports, or once more while it ends, is no traceback.
"""

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
    if code == INTERRUPTED:  # Python waits for threads now; a second Ctrl-C, then or before, means not to
        from ttabench.system.interrupts import leave_at_once

        if signal.signal(signal.SIGINT, leave_at_once) is leave_at_once:
            signal.raise_signal(signal.SIGINT)
    sys.exit(code)  # type: ignore[arg-type]


if __name__ == "__main__":
    main()
