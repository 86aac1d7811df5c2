"""The nightly batch under Spark's own launcher: spark-submit jobs/nightly.py"""

import sys

from medallion.cli.main import main

if __name__ == "__main__":
    sys.exit(main(["nightly", *sys.argv[1:]]))
