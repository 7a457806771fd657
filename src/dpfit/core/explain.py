"""Events in words."""

from __future__ import annotations

from dpfit.privacy import event as events
from dpfit.privacy.event import Event


def in_words(event: Event) -> str:
    """An event in one line."""
    return event.fold(_words)


def _words(event: Event, parts: tuple[str, ...]) -> str:
    """One event, given its parts in words."""
    inside = ", ".join(parts)
    match event:
        case events.Composed():
            return ", then ".join(parts)
        case events.Repeated(times=times):
            return f"{times} times {inside}"
        case events.Parallel(by=by):
            return f"on disjoint parts (by {by}): {inside}"
        case events.Sampled(rate=rate, method=method):
            return f"on a {method.replace('_', ' ')} sample at rate {rate:g}: {inside}"
        case events.Selected(stop=stop):
            return f"best of about {1 / stop:g} runs of: {inside}"
        case events.Filtered():
            return f"adaptive steps up to a cap of {inside}"
    fields = {k: v for k, v in event.to_json().items() if k != "kind"}
    shown = (
        f"{k.replace('_', ' ')} {v:.4g}" if isinstance(v, float) else f"{k} {v}"
        for k, v in fields.items()
    )
    return f"{event.kind.replace('_', ' ')} ({', '.join(shown)})"
