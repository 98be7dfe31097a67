"""What turns a model and a variant into a runnable artifact."""
