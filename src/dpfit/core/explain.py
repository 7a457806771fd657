"""Events in words."""

from __future__ import annotations

from dpfit.privacy import event as events
from dpfit.privacy.event import Event


def in_words(event: Event) -> str:
    """An event in one line."""
    match event:
        case events.Composed(events=parts):
            return ", then ".join(map(in_words, parts))
        case events.Repeated(event=inner, times=times):
            return f"{times} times {in_words(inner)}"
        case events.Parallel(events=parts, by=by):
            return f"on disjoint parts (by {by}): {', '.join(map(in_words, parts))}"
        case events.Sampled(event=inner, rate=rate, method=method):
            return f"on a {method.replace('_', ' ')} sample at rate {rate:g}: {in_words(inner)}"
        case events.Selected(event=inner, stop=stop):
            return f"best of about {1 / stop:g} runs of: {in_words(inner)}"
        case events.Filtered(cap=cap):
            return f"adaptive steps up to a cap of {in_words(cap)}"
    fields = {k: v for k, v in event.to_json().items() if k != "kind"}
    shown = (f"{k.replace('_', ' ')} {v:.4g}" if isinstance(v, float) else f"{k} {v}" for k, v in fields.items())
    return f"{event.kind.replace('_', ' ')} ({', '.join(shown)})"
