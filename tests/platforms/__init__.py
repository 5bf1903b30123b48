"""Stand-ins for platforms that the tests do not run on: Linux without what it alone has.

    typeshed   which names of the standard library a platform lacks
    macos      this process as one on macOS
    windows    this process as one on Windows

Importing `macos` or `windows` changes the process, so it comes first in a process of its own:
`python -m platforms.macos serve` is `dragoman serve`, `pytest -p platforms.macos` runs tests.
"""
