"""Tools that answer what their first implementation answered: the right shape, always the same, whatever is asked.

A suite that cannot tell these from the real ones proves nothing. `test_constants.py` runs it against each of them.
"""

from __future__ import annotations

from typing import Any

from toolgate.model.tool import Context, Result
from toolgate.packs.governance.analysis.report import report
from toolgate.packs.governance.analysis.weigh import AnalysisRequest, weigh
from toolgate.packs.governance.repository.model import Repository

MUTANT = "GOVERNANCE_TOOL_OF_CONSTANTS"
"""Environment variable: the tool to replace."""


def _l0(_ctx: Context, args: dict[str, Any]) -> Result:
    result = {
        "invariantId": "L0-003",
        "name": "drift-magnitude",
        "passed": True,
        "status": "passed",
        "message": "ok",
        "evidence": {},
        "latencyNs": 50,
        "steadyNs": 50,
        "severity": "high",
        "remediation": None,
    }
    validation = {
        "allPassed": True,
        "checksRun": 1,
        "passed": 1,
        "failed": 0,
        "unknown": 0,
        "results": [result],
        "failures": [],
        "notRun": [],
    }
    data = {
        "validation": validation,
        "performanceNs": 50,
        "steadyNs": 50,
        "withinPerformanceTarget": True,
        "latencyMethod": "block",
        "steadyMethod": "median",
    }
    return Result(data=data, decision="pass")


def _analyze(_ctx: Context, args: dict[str, Any]) -> Result:
    empty = weigh(AnalysisRequest("pull_request"), Repository({}), [], now=0)
    return Result(data=report(empty), decision="pass")


def _adr(_ctx: Context, args: dict[str, Any]) -> Result:
    compliance = {
        "compliant": True,
        "status": "compliant",
        "filesChecked": len(args["files"]),
        "adrsChecked": 1,
        "rulesChecked": 2,
        "adrList": ["ADR-0003"],
        "violations": [],
        "violationSummary": {"total": 0, "critical": 0, "high": 0, "medium": 0, "low": 0},
        "skipped": [],
        "unknownAdrs": [],
        "adrDetails": [],
        "omitted": {"violations": 0, "skipped": 0, "adrDetails": 0},
    }
    return Result(data={"compliance": compliance}, decision="pass")


def _consent(_ctx: Context, args: dict[str, Any]) -> Result:
    granted = {
        "valid": True,
        "state": "granted",
        "reason": "ok",
        "grantedAt": None,
        "expiresAt": None,
        "version": "1.2",
    }
    data: dict[str, Any] = {
        "checkType": args["checkType"],
        "policyVersion": "1.2",
        "allValid": True,
        "resources": [granted | {"resource": name} for name in args.get("resources", ["fp_metrics"])],
    }
    if args["checkType"] == "required_for_operation":
        named = {"tool": args.get("tool", ""), "name": args.get("operation", ""), "known": True}
        data["operation"] = named | {"requires": [], "canProceed": True}
    return Result(data=data, decision="pass")


def _fp(_ctx: Context, args: dict[str, Any]) -> Result:
    counted = {
        "total": 100,
        "reviewed": 100,
        "pending": 0,
        "falsePositives": 5,
        "truePositives": 95,
        "fpr": 0.05,
        "interval": {"level": 0.95, "low": 0.0215, "high": 0.1118},
        "confidence": "high",
    }
    rate = {"ruleId": args.get("ruleId", "MD-001"), **counted, "recommendation": "ok"}
    query = {"type": args["queryType"], "since": "", "until": ""}
    trend = {"ruleId": "MD-001", "buckets": [], "slopePerWeek": 0.0, "direction": "stable", "percentChange": 0.0}
    rule = {"ruleId": "MD-001", **counted, "needsCalibration": False, "benchmark": {"status": "high", "fpr": 0.05}}
    summary = {"threshold": 0.1, "needingCalibration": 0, "averageFPR": 0.05, "highest": None, "lowest": None}
    data = {
        "query": query,
        "consent": ["fp_metrics"],
        "confidence": "high",
        "rate": rate,
        "patterns": [],
        "trend": trend,
        "comparison": {"rules": [rule], "summary": summary},
    }
    return Result(data=data, decision="pass")


CONSTANT_RUNS = {
    "validate_l0_invariants": _l0,
    "analyze_dissonance": _analyze,
    "check_adr_compliance": _adr,
    "check_consent_requirements": _consent,
    "query_fp_store": _fp,
}
