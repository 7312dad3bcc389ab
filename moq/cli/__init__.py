"""The `moq` command: parse, call, print. One module per command, each with `add_parser`."""
