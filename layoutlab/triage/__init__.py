"""Reading logs of TVM that users have, and what can be told from them. Nothing here needs TVM."""
