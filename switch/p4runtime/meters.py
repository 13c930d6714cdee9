# SPDX-License-Identifier: Apache-2.0
"""Meter configurations (specification, section 9.4): checked against a meter's type, and back."""

from __future__ import annotations

from finsy.proto import p4i, p4r

from railweave.switch.p4runtime.errors import Refused, require, unimplemented
from railweave.switch.pipeline import MeterConfig

_NAMES = {
    p4i.MeterSpec.SINGLE_RATE_THREE_COLOR: "single-rate three-colour",
    p4i.MeterSpec.SINGLE_RATE_TWO_COLOR: "single-rate two-colour",
}


def decode(meter: p4i.Meter | p4i.DirectMeter, config: p4r.MeterConfig | None) -> MeterConfig | None:
    """Return the rates for a meter. A meter without config is always green: None."""
    if config is None:
        return None
    name, kind = meter.preamble.name, meter.spec.type
    if kind in _NAMES:
        require(
            (config.pir, config.pburst) == (config.cir, config.cburst),
            f"meter {name} is {_NAMES[kind]}: its peak rate and burst must equal the committed ones",
        )
    if config.eburst and kind == p4i.MeterSpec.SINGLE_RATE_THREE_COLOR:
        raise unimplemented(f"meter {name}: an excess burst (RFC 2697) is not supported, as on BMv2")
    require(not config.eburst, f"meter {name} takes no eburst: that is for single-rate three-colour")
    return MeterConfig(config.cir, config.cburst, config.pir, config.pburst)


def encode(config: MeterConfig) -> p4r.MeterConfig:
    """Return the message of a configuration."""
    return p4r.MeterConfig(cir=config.cir, cburst=config.cburst, pir=config.pir, pburst=config.pburst)


def no_colours() -> Refused:
    """Return a refusal: meters mark packets and do not count them."""
    return unimplemented("meter_counter_data: meters do not count packets by colour, as on BMv2")
