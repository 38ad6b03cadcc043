# Everything from outside, found once. Versions and reasons are in third_party/README.md.
# Boost 1.74 (Debian's default) lacks as_tuple, cancellation slots and Process v2.
set(Boost_USE_STATIC_LIBS ON)  # sgd-launch starts in milliseconds: fewer shared objects to load.
find_package(Boost 1.81 REQUIRED COMPONENTS filesystem)
find_package(nlohmann_json 3.11 REQUIRED)
find_package(fmt 9 REQUIRED)
find_package(ZLIB REQUIRED)
find_package(Threads REQUIRED)

add_library(sgd_fmt INTERFACE)  # Header-only: one shared object less at start.
target_link_libraries(sgd_fmt INTERFACE fmt::fmt-header-only)

if(SGD_WITH_TORCH)
  find_package(LibTorch REQUIRED)
endif()
