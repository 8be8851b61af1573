"""The command line: one module a command. Turns arguments into calls of the app and results into text and exit codes.

Nothing heavy is imported before a command needs it, so that help is there at once.
"""
