"""Results of flows as dataclasses, with the JSON that programs read and that runs save."""
