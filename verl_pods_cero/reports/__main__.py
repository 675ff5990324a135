"""`python -m verl_pods_cero.reports RUN [RUN ...]`."""

import argparse
import sys

from verl_pods_cero.reports.command import add_arguments, run

parser = argparse.ArgumentParser(prog="python -m verl_pods_cero.reports", description=add_arguments.__doc__)
add_arguments(parser)
sys.exit(run(parser.parse_args()))
