#pragma once
// The tag that tells a worker whether a library was built for it. It lies in every library that registers something,
// and is read from the file before any of its code runs.

#include <torch/version.h>

#define SGD_API_VERSION 5

#define SGD_ABI_TEXT(value) #value
#define SGD_ABI_NUMBER(value) SGD_ABI_TEXT(value)
/// Version of this API, of LibTorch, and of the compiler's C++ ABI.
#define SGD_PLUGIN_ABI                                                                                            \
  "sgd-plugin-abi: API " SGD_ABI_NUMBER(SGD_API_VERSION) ", LibTorch " TORCH_VERSION ", C++ ABI " SGD_ABI_NUMBER( \
      __GXX_ABI_VERSION) " " SGD_ABI_NUMBER(_GLIBCXX_USE_CXX11_ABI)

namespace sgd {
/// Kept in the library though nothing reads it there.
__attribute__((used)) inline const char plugin_abi[] = SGD_PLUGIN_ABI;
}  // namespace sgd
