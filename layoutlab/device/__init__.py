"""Where artifacts and the baseline run."""
