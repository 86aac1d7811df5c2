"""What gold publishes, under spark-submit: jobs/publish.py [--trigger "4 seconds"]"""

import sys

from medallion.cli.main import main

if __name__ == "__main__":
    sys.exit(main(["run", "publish", *sys.argv[1:]]))
