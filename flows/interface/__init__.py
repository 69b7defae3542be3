"""The user's side of a run: fields of settings, progress, interrupts and images."""
