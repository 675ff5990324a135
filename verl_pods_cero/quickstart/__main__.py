"""`python -m verl_pods_cero.quickstart [prepare | smollm2 | overrides]`."""

from __future__ import annotations

import sys

from verl_pods_cero.quickstart import prepare, run, smollm2

if __name__ == "__main__":
    arguments = sys.argv[1:]
    if arguments[:1] == ["prepare"]:
        prepare.main(arguments[1:])
    elif arguments[:1] == ["smollm2"]:
        sys.exit(smollm2.main(arguments[1:]))
    else:
        sys.exit(run.run(arguments))
