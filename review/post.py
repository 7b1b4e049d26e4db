"""Posts the previews on their pull request, or updates those there: `python -m review.post FOLDER`.

FOLDER holds STACK.md for each previewed stack; each becomes one comment.

Runs in GitHub's `workflow_run` event with the right to write comments, after a run that may have
executed a fork's code. So it takes from that run nothing but a text: which pull request it belongs
to comes from GitHub's own event, and is checked against GitHub's list of open pull requests.
Standard library only, since nothing is installed there.
"""

from __future__ import annotations

import json
import os
import sys
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

from review.comment import LONGEST, marker

REPOSITORY = Path(__file__).resolve().parent.parent
AUTHOR = "github-actions[bot]"
PER_PAGE = 100


def main(arguments: list[str] | None = None) -> int:
    """Posts what the folder of the first argument holds, with the variables that GitHub sets."""
    folder = Path((arguments or sys.argv[1:])[0])
    event = json.loads(Path(os.environ["GITHUB_EVENT_PATH"]).read_text())
    number = pull_request(event["workflow_run"])
    if number is None:
        print("No open pull request is at that commit any more: a newer run will comment.")
        return 0
    # Stacks of this checkout alone: names in the folder are the pull request's text, too.
    for settings in sorted(REPOSITORY.glob("Pulumi.*.yaml")):
        stack = settings.name.split(".")[1]
        path = folder / f"{stack}.md"
        if path.is_file():
            text = path.read_text(errors="replace")[:LONGEST]
            first = marker(stack)
            if not text.startswith(first):
                text = f"{first}\n\n{text}"
            print(publish(number, first, text))
    return 0


def pull_request(run: dict[str, Any]) -> int | None:
    """Number of the open pull request whose newest commit the run has tested, if there is one."""
    head = f"{run['head_repository']['owner']['login']}:{run['head_branch']}"
    query = urllib.parse.urlencode({"state": "open", "head": head, "per_page": PER_PAGE})
    for found in call("GET", f"pulls?{query}"):
        if found["head"]["sha"] == run["head_sha"]:
            return found["number"]
    return None


def publish(number: int, first_line: str, text: str) -> str:
    """Updates our comment on the pull request, or makes it; returns its address."""
    page = 1
    while True:
        comments = call("GET", f"issues/{number}/comments?per_page={PER_PAGE}&page={page}")
        for found in comments:
            if found["user"]["login"] == AUTHOR and found["body"].startswith(first_line):
                return call("PATCH", f"issues/comments/{found['id']}", {"body": text})["html_url"]
        if len(comments) < PER_PAGE:
            return call("POST", f"issues/{number}/comments", {"body": text})["html_url"]
        page += 1


def call(method: str, path: str, body: dict[str, Any] | None = None) -> Any:
    """One request to the repository's part of GitHub's REST API, decoded."""
    address = f"{os.environ['GITHUB_API_URL']}/repos/{os.environ['GITHUB_REPOSITORY']}/{path}"
    request = urllib.request.Request(
        address,
        method=method,
        data=json.dumps(body).encode() if body else None,
        headers={
            "Accept": "application/vnd.github+json",
            "Authorization": f"Bearer {os.environ['GITHUB_TOKEN']}",
            "Content-Type": "application/json",
            "X-GitHub-Api-Version": "2022-11-28",
        },
    )
    with urllib.request.urlopen(request, timeout=60) as response:
        return json.load(response)


if __name__ == "__main__":
    sys.exit(main())
