"""How agents and trackers are reached: listening, handshakes, sessions, and registering with a tracker."""
