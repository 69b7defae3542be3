"""Progress of a run: who watches it, what they hear of its fits, and how it is interrupted."""
