"""`python -m verl_pods_cero.dry_run --config-name=<recipe> [overrides]`."""

import argparse
import sys

from verl_pods_cero.dry_run.command import add_arguments, run

parser = argparse.ArgumentParser(prog="python -m verl_pods_cero.dry_run", description=add_arguments.__doc__)
add_arguments(parser)
sys.exit(run(parser.parse_args()))
