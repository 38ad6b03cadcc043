#pragma once
// SGD_CLONES compiles a plain loop once per vector width; the program picks the widest one that
// the CPU has when it is loaded. Sanitizers run before such a choice can be made, so they get
// the plain version.

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(__x86_64__)
#define SGD_CLONES
#else
#define SGD_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#endif
