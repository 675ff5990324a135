"""`python -m verl_pods_cero.simulation`."""

import argparse
import sys

from verl_pods_cero.simulation.command import add_arguments, run

# The runs' processes import this module again.
if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m verl_pods_cero.simulation", description=add_arguments.__doc__)
    add_arguments(parser)
    sys.exit(run(parser.parse_args()))
