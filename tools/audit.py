"""Check installed packages for known vulnerabilities with pip-audit: `make audit`.

pip-audit ends with "No known vulnerabilities found" also where it received no data for a package. Here, that is no
all-clear: what was not checked is named.
"""

import json
import subprocess
import sys
from pathlib import Path

COMMAND = ("pip-audit", "--format", "json", "--desc", "off", "--aliases", "off", "--progress-spinner", "off")
UNREACHABLE = ("requests.exceptions.", "ServiceError", "your network may be blocking")
"""How pip-audit's messages show that its service did not answer."""
PROJECT = "self-imitation"


def main() -> int:
    command = [Path(sys.executable).with_name(COMMAND[0]), *COMMAND[1:]]
    audit = subprocess.run(command, capture_output=True, text=True)
    status, message = judge(audit.stdout, audit.stderr)
    print(f"audit: {message}")
    return status


def judge(report: str, errors: str) -> tuple[int, str]:
    """Exit status and message for pip-audit's report and its error output. Without data the status is 0."""
    try:
        packages = [package for package in json.loads(report)["dependencies"] if package["name"] != PROJECT]
    except ValueError:
        if any(sign in errors for sign in UNREACHABLE):
            return 0, "the vulnerability service can't be reached; nothing was checked"
        return 1, f"pip-audit failed\n{errors}"
    vulnerable = [
        f"{package['name']} {package['version']}: {found['id']}, fixed in {', '.join(found['fix_versions']) or '-'}"
        for package in packages
        for found in package.get("vulns", ())
    ]
    if vulnerable:
        return 1, "\n".join([f"known vulnerabilities: {len(vulnerable)}", *vulnerable])
    unknown = [package["name"] for package in packages if "vulns" not in package]
    if len(unknown) == len(packages):
        return 0, f"the vulnerability service has no data on any of {len(packages)} packages; nothing was checked"
    rest = f"; not checked, for lack of data: {', '.join(unknown)}" if unknown else ""
    return 0, f"{len(packages) - len(unknown)} packages without known vulnerabilities{rest}"


if __name__ == "__main__":
    sys.exit(main())
