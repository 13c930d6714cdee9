"""railweave's native core: protocol machines, event loop and P4 engine"""

from railweave._native import (
    agent as agent,
    collectives as collectives,
    engine as engine,
    ina as ina,
    load as load,
    ports as ports,
    roce as roce
)
