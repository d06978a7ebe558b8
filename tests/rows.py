"""Requirements that the settings answer for."""

ROWS: dict[str, str] = {
    "000-D-concurrency-default": "document 000, section D: ten concurrent requests per caller by default",
    "000-D-output-limit": "document 000, section D: output_limit_bytes is 65536",
}
