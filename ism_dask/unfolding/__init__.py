"""Maximum variance unfolding: an embedding that keeps the distances of neighbouring rows."""
