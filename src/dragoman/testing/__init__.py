"""What programs that use Dragoman, and Dragoman itself, are tested with.

Public and typed; nothing outside this package imports it. `memory` is a disk in memory, `sim` the
simulated world: a disk that loses power, virtual time, and the runner that cuts the power.
"""
