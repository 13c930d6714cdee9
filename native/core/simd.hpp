// SPDX-License-Identifier: Apache-2.0
// One source, two code paths: a marked function is compiled for the baseline and for AVX2, and the loader
// picks one. Sanitizers cannot instrument the resolver, so they get the baseline alone.
#pragma once

#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define RAILWEAVE_SIMD __attribute__((target_clones("avx2", "default")))
#else
#define RAILWEAVE_SIMD
#endif
