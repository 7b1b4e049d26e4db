"""What a pull request does to a stack, as one Markdown comment.

`python -m review BASE` deploys the program at BASE into a throw-away stand-in cloud and lets the
Pulumi engine preview the working tree against that state. Creates, updates, replaces and deletes
are therefore the engine's and the providers' own verdicts, not a comparison of two texts. No
account, no secret and no deployed stack is needed.
"""
