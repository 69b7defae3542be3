"""Records of an iteration: its states, its stopping rules, its checkpoints."""
