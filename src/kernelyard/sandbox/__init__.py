"""Where untrusted code runs: a process with a bounded world, and the proof that its walls stand.

This file stays free of imports: the small programs that start inside import it before every launch.
"""
