# Finds Gloo by a header and its library, with or without a CMake package file beside them.
# Defines Gloo::gloo.
find_path(Gloo_INCLUDE_DIR gloo/rendezvous/context.h)
find_library(Gloo_LIBRARY gloo)
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Gloo
  REQUIRED_VARS Gloo_LIBRARY Gloo_INCLUDE_DIR
  REASON_FAILURE_MESSAGE "Install libgloo-dev to train on several hosts.")
mark_as_advanced(Gloo_INCLUDE_DIR Gloo_LIBRARY)
if(Gloo_FOUND AND NOT TARGET Gloo::gloo)
  add_library(Gloo::gloo INTERFACE IMPORTED)
  target_include_directories(Gloo::gloo SYSTEM INTERFACE ${Gloo_INCLUDE_DIR})
  target_link_libraries(Gloo::gloo INTERFACE ${Gloo_LIBRARY})
endif()
