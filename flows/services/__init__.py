"""The long-lived processes of this machine that runs use: servers, schedulers and workers."""
