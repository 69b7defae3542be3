"""What W maximises, on a block of rows: how X W predicts y, or how y depends on X W."""
