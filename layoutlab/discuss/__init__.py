"""A post for a discussion of layouts, written from the results of finished runs."""
