// SPDX-License-Identifier: Apache-2.0
// FOR_EACH_LANE(X) writes X(00) X(01) … X(FF): P4 has no loop over header fields and registers, and lanes must be
// both. Lanes are numbered in hexadecimal, two digits, so that sixteen of them make a row.
#ifndef RAILWEAVE_REPEAT_P4
#define RAILWEAVE_REPEAT_P4

#define ROW(X, h) \
    X(h##0) X(h##1) X(h##2) X(h##3) X(h##4) X(h##5) X(h##6) X(h##7) \
    X(h##8) X(h##9) X(h##A) X(h##B) X(h##C) X(h##D) X(h##E) X(h##F)

#if LANES == 32
#define FOR_EACH_LANE(X) ROW(X, 0) ROW(X, 1)
#elif LANES == 64
#define FOR_EACH_LANE(X) ROW(X, 0) ROW(X, 1) ROW(X, 2) ROW(X, 3)
#elif LANES == 256
#define FOR_EACH_LANE(X) \
    ROW(X, 0) ROW(X, 1) ROW(X, 2) ROW(X, 3) ROW(X, 4) ROW(X, 5) ROW(X, 6) ROW(X, 7) \
    ROW(X, 8) ROW(X, 9) ROW(X, A) ROW(X, B) ROW(X, C) ROW(X, D) ROW(X, E) ROW(X, F)
#else
#error "LANES must be 32, 64 or 256"
#endif

#endif
