"""Choosing, changing and counting layouts."""
