"""What operators see of a running server: numbers, spans and lines (ADR-0030). None of it decides anything."""
