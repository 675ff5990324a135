"""verl's agent loops, with less to do for each of many rollouts per prompt."""
