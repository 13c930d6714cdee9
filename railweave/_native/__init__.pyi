"""railweave's native core: protocol machines, event loop and P4 engine"""

from railweave._native import (
    agent as agent,
    calls as calls,
    collectives as collectives,
    composed as composed,
    engine as engine,
    ina as ina,
    load as load,
    loop as loop,
    ports as ports,
    rails as rails,
    recovery as recovery,
    roce as roce,
    secret as secret,
    spread as spread,
    sum_rings as sum_rings
)
