"""Parts of railweave's native core for tests"""

from railweave._rigs import (
    agent as agent,
    calls as calls,
    collectives as collectives,
    composed as composed,
    ina as ina,
    loop as loop,
    ports as ports,
    rails as rails,
    recovery as recovery,
    roce as roce,
    secret as secret,
    spread as spread,
    sum_rings as sum_rings
)
