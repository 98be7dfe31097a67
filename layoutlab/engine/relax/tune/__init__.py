"""Searching for schedules."""
