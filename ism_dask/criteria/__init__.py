"""What W maximises, on a block of rows: how well a regression on X W predicts y."""
