"""Gold under Spark's own launcher: spark-submit jobs/gold.py [--trigger "4 seconds"]"""

import sys

from medallion.cli.main import main

if __name__ == "__main__":
    sys.exit(main(["run", "gold", *sys.argv[1:]]))
