"""The comparison as data, and the forms it is shown in."""
