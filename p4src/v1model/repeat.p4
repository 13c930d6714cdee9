// SPDX-License-Identifier: Apache-2.0
// FOR_EACH_LANE(X) for more lanes than a Tofino can have: X(000) X(001) … X(3FF).
#if LANES == 1024

#define ROW(X, h) \
    X(h##0) X(h##1) X(h##2) X(h##3) X(h##4) X(h##5) X(h##6) X(h##7) \
    X(h##8) X(h##9) X(h##A) X(h##B) X(h##C) X(h##D) X(h##E) X(h##F)
#define BLOCK(X, h) \
    ROW(X, h##0) ROW(X, h##1) ROW(X, h##2) ROW(X, h##3) ROW(X, h##4) ROW(X, h##5) ROW(X, h##6) ROW(X, h##7) \
    ROW(X, h##8) ROW(X, h##9) ROW(X, h##A) ROW(X, h##B) ROW(X, h##C) ROW(X, h##D) ROW(X, h##E) ROW(X, h##F)
#define FOR_EACH_LANE(X) BLOCK(X, 0) BLOCK(X, 1) BLOCK(X, 2) BLOCK(X, 3)

#else
#include "common/repeat.p4"
#endif
