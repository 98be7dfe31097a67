"""The error that says something is wrong with what was asked, in words for the user."""


class Refused(Exception):
    """What cannot be done, why, and what to do; `stage` names the part of the work it belongs to."""

    def __init__(self, stage, message):
        super().__init__(message)
        self.stage = stage
        self.message = message
