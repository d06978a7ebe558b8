"""What the documents ask of the governance tools, in our own words."""

ROWS: dict[str, str] = {
    "001-L0-1": "document 001: the tool runs the named checks, or, without names, every check",
    "001-L0-2": "document 001: the answer holds validation (allPassed, checksRun, passed, failed, results, failures)",
    "001-L0-3": "document 001: the answer holds performanceNs, the sum of the checks' latencies",
    "001-L0-4": "document 001: withinPerformanceTarget says whether every check stayed under 100 ns",
    "001-L0-5": "document 001: all checks passed is decision pass, otherwise block",
    "001-L0-6": "document 001: faulty input is INVALID_INPUT with the list of errors",
    "001-L0-7": "document 001: defaults: threshold 0.5, maxAgeSeconds 3600, minRequiredEvents 10",
    "001-L0-8": "document 001: schema-hash compares a file's SHA-256 with the expected one",
    "001-L0-9": "document 001: permission-bits holds workflows to least privilege",
    "001-L0-10": "document 001: drift-magnitude keeps a metric within a threshold of its baseline",
    "001-L0-11": "document 001: nonce-freshness checks the age of a nonce",
    "001-L0-12": "document 001: contraction-witness asks for evidence when the false-positive rate falls",
    "001-L0-13": "document 001: in local mode the tool is degraded and does not block (drift 90 to 100, threshold 0.2)",
    "001-T1": "document 001: four tools are authoritative, each with its own ADR; two are experimental",
    "001-T2": "document 001: an authoritative tool is advisory in the local and binding in the cloud environment",
    "001-T3": "document 001: analyze_dissonance works and is authoritative",
    "001-T4": "document 001: query_fp_store is read-only analytics and never blocks",
    "001-T5": "document 001: check_consent_requirements may say CONSENT_REQUIRED",
    "001-T6": "document 001: check_adr_compliance is authoritative",
    "001-E1": "document 001: without stores for false positives and consent the environment is local",
}
