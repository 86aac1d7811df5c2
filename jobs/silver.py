"""Silver under Spark's own launcher: spark-submit jobs/silver.py [--trigger "4 seconds"]"""

import sys

from medallion.cli.main import main

if __name__ == "__main__":
    sys.exit(main(["run", "silver", *sys.argv[1:]]))
