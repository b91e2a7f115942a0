"""``python -m ttabench``: the command line, where the Python matters more than the path of its scripts."""

from ttabench.cli import main

if __name__ == "__main__":
    main()
