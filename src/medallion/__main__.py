"""`python -m medallion` is `medallion`."""

import sys

from medallion.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
