"""How a spec's search is named in plans and tables."""

from __future__ import annotations

from typing import Any


def search_text(tuning: dict[str, Any]) -> str:
    """The search with what ranks its candidates, and what else limited it."""
    ranked = f", cost model {tuning['cost_model']}" if tuning["search"] == "evolutionary" else ""
    limits = [
        f", {text.format(value)}"
        for field, text in (
            ("time_limit_s", "at most {} s a variant"),
            ("early_stop", "a task ended after {} trials without a better one"),
        )
        if (value := tuning.get(field))
    ]
    skipped = f", without {', '.join(tuning['skip'])}" if tuning.get("skip") else ""
    return f"{tuning['search']} search{ranked}{''.join(limits)}{skipped}"
