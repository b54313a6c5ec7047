// Every difference between libtorch versions that C++ can see.
#pragma once
#include <torch/version.h>

#define TORCH_AT_LEAST(major, minor) \
  (TORCH_VERSION_MAJOR > (major) || (TORCH_VERSION_MAJOR == (major) && TORCH_VERSION_MINOR >= (minor)))

#if TORCH_AT_LEAST(2, 0)
#include <optional>
template <class T>
using Maybe = std::optional<T>;
#else
#include <c10/util/Optional.h>
template <class T>
using Maybe = c10::optional<T>;
#endif
