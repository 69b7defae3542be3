"""What a fit chooses by rows that W has not seen: its start, width, ridge, target and dimension."""
