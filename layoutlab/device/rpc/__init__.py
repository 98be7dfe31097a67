"""Phones and boards over TVM RPC."""
