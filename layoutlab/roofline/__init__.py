"""How far a function is from what its device can do: peaks, and the bounds that follow from them."""
