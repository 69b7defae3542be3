"""What the user of a run meets: options, progress, interrupts, images."""
