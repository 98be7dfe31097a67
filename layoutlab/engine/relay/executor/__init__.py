"""Running what a Relay-era TVM compiled without that TVM: its objects, their graph and weights become one library."""
