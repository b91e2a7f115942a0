"""The command line: ``ttabench``, and ``python -m ttabench``. Ctrl-C during its imports is no traceback."""

import sys


def main() -> None:
    try:
        from ttabench.cli import main as command
    except KeyboardInterrupt:
        sys.exit(130)
    command()


if __name__ == "__main__":
    main()
