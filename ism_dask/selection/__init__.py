"""What a fit chooses by evidence and unseen rows: target, dimension, start, width and ridge."""
