"""What people are shown of a run when it is over: pictures, plots, pages."""
