"""What `make audit` makes of pip-audit's reports."""

import json

import audit

CLEAN = {"name": "numpy", "version": "2.0.0", "vulns": []}
VULNERABLE = {"name": "pillow", "version": "10.0.0", "vulns": [{"id": "PYSEC-1", "fix_versions": ["10.0.1", "10.1"]}]}
WITHOUT_DATA = {"name": "jax", "skip_reason": "Dependency not found on PyPI and could not be audited: jax (0.10.0)"}
PROJECT = {"name": "self-imitation", "skip_reason": "Dependency not found on PyPI and could not be audited"}


def judge(*packages: dict) -> tuple[int, str]:
    return audit.judge(json.dumps({"dependencies": [*packages, PROJECT], "fixes": []}), "")


def test_a_known_vulnerability_fails():
    status, message = judge(CLEAN, VULNERABLE, WITHOUT_DATA)
    assert status == 1
    assert message == "known vulnerabilities: 1\npillow 10.0.0: PYSEC-1, fixed in 10.0.1, 10.1"


def test_packages_without_data_are_named():
    assert judge(CLEAN) == (0, "1 packages without known vulnerabilities")
    assert judge(CLEAN, WITHOUT_DATA)[1].endswith("; not checked, for lack of data: jax")


def test_no_data_at_all_is_not_an_all_clear():
    assert judge(WITHOUT_DATA) == (
        0,
        "the vulnerability service has no data on any of 1 packages; nothing was checked",
    )


def test_an_unreachable_service_is_reported_and_does_not_fail():
    error = "Traceback (most recent call last):\n  ...\nrequests.exceptions.ConnectionError: Max retries exceeded"
    assert audit.judge("", error) == (0, "the vulnerability service can't be reached; nothing was checked")


def test_any_other_failure_of_pip_audit_fails():
    assert audit.judge("", "ERROR: no such interpreter") == (1, "pip-audit failed\nERROR: no such interpreter")
