# SPDX-License-Identifier: Apache-2.0
"""Values of counters, and configurations of meters (specification, sections 9.3 and 9.4)."""

from __future__ import annotations

from typing import Any

from finsy.proto import p4i, p4r

from railweave.switch.p4runtime.errors import require, unimplemented
from railweave.switch.pipeline import CounterValue, MeterConfig

_NAMES = {
    p4i.MeterSpec.SINGLE_RATE_THREE_COLOR: "single-rate three-colour",
    p4i.MeterSpec.SINGLE_RATE_TWO_COLOR: "single-rate two-colour",
}


def counter_value(message: Any, field: str = "data") -> CounterValue | None:
    """Return the counter's value that a message has in a field, if it has one; Refused if it is negative."""
    if not message.HasField(field):
        return None
    data = getattr(message, field)
    require(data.packet_count >= 0 and data.byte_count >= 0, "a counter's packets and bytes are 0 or more")
    return CounterValue(data.packet_count, data.byte_count)


def meter_config(
    meter: p4i.Meter | p4i.DirectMeter, message: Any, field: str = "config"
) -> MeterConfig | None:
    """Return the rates that a message has in a field; None, always green, if it has none.

    Refused if the meter's type does not allow them.
    """
    if not message.HasField(field):
        return None
    config, name, kind = getattr(message, field), meter.preamble.name, meter.spec.type
    if kind in _NAMES:
        require(
            (config.pir, config.pburst) == (config.cir, config.cburst),
            f"meter {name} is {_NAMES[kind]}: its peak rate and burst must equal the committed ones",
        )
    if config.eburst and kind == p4i.MeterSpec.SINGLE_RATE_THREE_COLOR:
        raise unimplemented(f"meter {name}: an excess burst (RFC 2697) is not supported, as on BMv2")
    require(not config.eburst, f"meter {name} takes no eburst: that is for single-rate three-colour")
    return MeterConfig(config.cir, config.cburst, config.pir, config.pburst)


def encode_meter(config: MeterConfig) -> p4r.MeterConfig:
    """Return the message of a meter's configuration."""
    return p4r.MeterConfig(cir=config.cir, cburst=config.cburst, pir=config.pir, pburst=config.pburst)


def require_no_colours(message: Any, field: str = "counter_data") -> None:
    """Refuse a field with the counters of a meter: meters mark packets and do not count them."""
    colours = "meter_counter_data: meters do not count packets by colour, as on BMv2"
    require(not message.HasField(field), colours, unimplemented)
