"""The same as `ttabench paper`, which see: python scripts/paper_experiments.py --help"""

import sys

from ttabench.cli import main

if __name__ == "__main__":
    sys.argv.insert(1, "paper")
    main()
