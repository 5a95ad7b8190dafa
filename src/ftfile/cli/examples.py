"""The examples that `--help` shows."""

EXAMPLES: dict[str, tuple[str, ...]] = {
    "": (
        "ftfile status /data/out  # is it stuck? what is open, what is due",
        "ftfile ls s3://bucket/out --json | jq .path",
        'ftfile cat /data/out --where "month = 7" --format csv > july.csv',
        "ftfile verify /data/out && echo whole",
        "ftfile COMMAND --help  # examples of each command",
    ),
    "status": (
        "ftfile status /data/out",
        "ftfile status /data/out --source /data/in  # which a query of it follows",
        "ftfile status /data/out --json | jq '.open[] | select(.reason != \"\")'",
    ),
    "ls": (
        "ftfile ls /data/out",
        "ftfile ls /data/out --version 12",
        "ftfile ls hdfs://cluster/out --json | jq -r 'select(.batch_id == 7) | .path'",
    ),
    "history": ("ftfile history /data/out --limit 20", "ftfile history /data/out --json | jq '{version, rows}'"),
    "show": ("ftfile show /data/out 12", "ftfile show /data/out month=7/0000000003-0-0ef664b64a3b.json"),
    "report": ("ftfile report /data/out", "ftfile report s3://bucket/out -o out.html --no-verify"),
    "source": (
        "ftfile source /data/in --checkpoint /data/checkpoint",
        "ftfile source s3://bucket/in -o stateLocation=s3://bucket/state",
    ),
    "cat": (
        "ftfile cat /data/out",
        'ftfile cat /data/out --columns word,n --where "month >= 7 AND word IS NOT NULL"',
        "ftfile cat /data/out --version 12 --json | jq .word",
        "ftfile cat /data/out --timestamp 2024-07-01T12:00:00Z",
    ),
    "head": ("ftfile head /data/out", "ftfile head /data/out -n 3 --json"),
    "tail": ("ftfile tail /data/out -n 20", "ftfile tail -f /data/out --where \"level = 'ERROR'\""),
    "verify": (
        "ftfile verify /data/out",
        "ftfile verify /data/out --full --threads 8",
        "ftfile verify /data/out --json",
    ),
    "doctor": ("ftfile doctor", "ftfile doctor s3://bucket/out --storage endpoint=http://localhost:9000"),
    "flush": ("ftfile flush /data/out --dry-run", "ftfile flush /data/out --due-only"),
    "compact": (
        "ftfile compact /data/out --dry-run",
        'ftfile compact /data/out --where "month = 7" --target 256MiB --commit-every 64',
    ),
    "export": ("ftfile export /data/out --to delta", "ftfile export /data/out --to hive --table db.out"),
    "repair": (
        "ftfile repair /data/out --dry-run",
        "ftfile repair /data/out",
        "ftfile repair /data/out --give-up month=7/lost.parquet",
    ),
    "migrate": (
        "ftfile migrate /data/out --dry-run",
        "ftfile migrate /data/out --checkpoint /data/checkpoint --partition-by day=date",
        'ftfile migrate /data/in --from files --schema "id long, at timestamp" -o header=true',
        "ftfile migrate /data/out --undo",
    ),
    "vacuum": ("ftfile vacuum /data/out --dry-run", "ftfile vacuum /data/out --retention 36h --yes"),
    "expire": (
        "ftfile expire /data/out --keep-last 10 --dry-run",
        "ftfile expire /data/out --older-than 30d --keep-last 100 --yes",
    ),
    "drop": (
        'ftfile drop /data/out --where "month < 7" --dry-run',
        "ftfile drop /data/out --where \"bucketTime < DATE '2024-07-01'\" --bucket-pattern yyyy-MM-dd",
    ),
    "restore": (
        "ftfile restore /data/out --version 12 --dry-run",
        "ftfile restore /data/out --timestamp 2024-07-01T12:00:00Z --yes",
    ),
    "kv": ("ftfile kv stats /data/words", "ftfile kv get /data/words hello world"),
    "kv get": ("ftfile kv get /data/words hello world", "ftfile kv get /data/visits de,2024-07-01 --json"),
    "kv scan": ("ftfile kv scan /data/words --start h --end i", "ftfile kv scan /data/words -n 10 --columns word,n"),
    "kv stats": ("ftfile kv stats /data/words",),
    "kv verify": ("ftfile kv verify /data/words && echo whole",),
    "kv compact": ("ftfile kv compact /data/words --full",),
}


def examples_of(command: str) -> str:
    """Return the examples of a command, as typer shows them below its options."""
    lines = [_marked(line) for line in EXAMPLES[command]]
    return "\n".join(["[bold]Examples[/bold]", *lines])


def _marked(line: str) -> str:
    """Return an example with its comment dimmed; brackets are no markup."""
    text, hash_sign, comment = line.replace("[", r"\[").partition("  #")
    return f"  {text}[dim]  #{comment}[/dim]" if hash_sign else f"  {text}"
