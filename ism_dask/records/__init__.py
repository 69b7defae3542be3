"""Records of a fit: its report, the states of its iteration, stopping rules and checkpoints."""
