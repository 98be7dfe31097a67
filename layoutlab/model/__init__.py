"""The models under test: read from .tflite files, described, and built."""
