"""Results of several runs next to each other: across specs, and across time."""
