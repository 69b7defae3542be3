"""How sure W is: intervals, and p-values of columns."""
