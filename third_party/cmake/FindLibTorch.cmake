# Finds LibTorch in the folder of the pip wheel or of a LibTorch archive. LibTorch's
# own package file insists on a whole CUDA toolkit when the wheel was built with CUDA.
#   SGD_TORCH_DIR   folder that holds include/ and lib/; scripts/setup prints the one it made.
# Defines the target LibTorch::cpu and LibTorch_VERSION.
set(SGD_TORCH_DIR "$ENV{SGD_TORCH_DIR}" CACHE PATH "LibTorch folder, with include/ and lib/")
find_path(LibTorch_INCLUDE_DIR torch/library.h
  HINTS ${SGD_TORCH_DIR}/include ${SGD_TORCH_DIR}/torch/include NO_DEFAULT_PATH)
find_path(LibTorch_API_DIR torch/torch.h
  HINTS ${LibTorch_INCLUDE_DIR}/torch/csrc/api/include NO_DEFAULT_PATH)
find_library(LibTorch_CPU_LIBRARY torch_cpu HINTS ${LibTorch_INCLUDE_DIR}/../lib NO_DEFAULT_PATH)
find_library(LibTorch_C10_LIBRARY c10 HINTS ${LibTorch_INCLUDE_DIR}/../lib NO_DEFAULT_PATH)
if(LibTorch_INCLUDE_DIR)
  # The numbers moved from the API's version.h to headeronly/ in 2.10.
  set(version_file ${LibTorch_INCLUDE_DIR}/torch/headeronly/version.h)
  if(NOT EXISTS ${version_file})
    set(version_file ${LibTorch_API_DIR}/torch/version.h)
  endif()
  set(numbers)
  foreach(part MAJOR MINOR PATCH)
    file(STRINGS ${version_file} version_line REGEX "#define TORCH_VERSION_${part} ")
    string(REGEX MATCH "[0-9]+" number "${version_line}")
    list(APPEND numbers ${number})
  endforeach()
  list(JOIN numbers "." LibTorch_VERSION)
endif()
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(LibTorch
  REQUIRED_VARS LibTorch_CPU_LIBRARY LibTorch_C10_LIBRARY LibTorch_INCLUDE_DIR LibTorch_API_DIR
  VERSION_VAR LibTorch_VERSION
  REASON_FAILURE_MESSAGE "Run scripts/setup, or pass -DSGD_TORCH_DIR=<LibTorch>, or build the launcher alone with -DSGD_WITH_TORCH=OFF.")
if(LibTorch_FOUND AND NOT TARGET LibTorch::cpu)
  add_library(LibTorch::cpu INTERFACE IMPORTED)
  target_include_directories(LibTorch::cpu SYSTEM INTERFACE ${LibTorch_INCLUDE_DIR} ${LibTorch_API_DIR})
  target_link_libraries(LibTorch::cpu INTERFACE ${LibTorch_CPU_LIBRARY} ${LibTorch_C10_LIBRARY})
endif()
