// SPDX-License-Identifier: Apache-2.0
// Types, outer headers and register names: the first include of an algorithm's program.
// The compiler is given ALGORITHM_PORT, ALGORITHM_PORTS, ALGORITHM_HEADER_BYTES and LANES, which algorithm.toml names.
// After this file, the program declares its header `algorithm_h` and its fields `own_t`, and includes frame.p4.
#ifndef RAILWEAVE_ALGORITHM_BEGIN_P4
#define RAILWEAVE_ALGORITHM_BEGIN_P4

#include "common/config.p4"
#include "v1model/arch.p4"
#include "common/types.p4"
#if LANES == 8
#define FOR_EACH_LANE(X) X(00) X(01) X(02) X(03) X(04) X(05) X(06) X(07)
#else
#include "common/repeat.p4"
#endif
#include "common/headers.p4"

#endif
