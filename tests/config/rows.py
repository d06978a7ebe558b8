"""Requirements that the settings and the callers' keys answer for."""

ROWS: dict[str, str] = {
    "000-C-auth-identity": "document 000, section C: protected operations need an authenticated caller identity before dispatch",
    "000-D-missing-key": "document 000, section D: a caller without a key is told auth_missing_api_key",
    "000-D-invalid-key": "document 000, section D: a key that matches no known key is told auth_invalid_api_key",
    "000-D-concurrency-default": "document 000, section D: ten concurrent requests per caller by default",
    "000-D-output-limit": "document 000, section D: output_limit_bytes is 65536",
}
