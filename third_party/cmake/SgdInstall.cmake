# `cmake --install build/release --prefix DIR`: the programs, and what plug-ins are built against. The build folder
# itself serves as a package, too: -DSgdLaunch_DIR=build/release/cmake.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
install(TARGETS sgd-launch)
if(SGD_WITH_TORCH)
  install(TARGETS sgd-worker)
  set_target_properties(sgd-worker PROPERTIES INSTALL_RPATH_USE_LINK_PATH ON)
  install(DIRECTORY worker/include/sgd DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
  set(package ${CMAKE_INSTALL_LIBDIR}/cmake/SgdLaunch)
  file(RELATIVE_PATH SGD_HEADERS /${package} /${CMAKE_INSTALL_INCLUDEDIR})
  configure_file(third_party/cmake/SgdLaunchConfig.cmake.in ${CMAKE_BINARY_DIR}/install/SgdLaunchConfig.cmake @ONLY)
  file(RELATIVE_PATH SGD_HEADERS ${CMAKE_BINARY_DIR}/cmake ${CMAKE_SOURCE_DIR}/worker/include)
  configure_file(third_party/cmake/SgdLaunchConfig.cmake.in ${CMAKE_BINARY_DIR}/cmake/SgdLaunchConfig.cmake @ONLY)
  configure_file(third_party/cmake/FindLibTorch.cmake ${CMAKE_BINARY_DIR}/cmake/FindLibTorch.cmake COPYONLY)
  write_basic_package_version_file(${CMAKE_BINARY_DIR}/cmake/SgdLaunchConfigVersion.cmake COMPATIBILITY ExactVersion)
  install(FILES ${CMAKE_BINARY_DIR}/install/SgdLaunchConfig.cmake ${CMAKE_BINARY_DIR}/cmake/SgdLaunchConfigVersion.cmake
                third_party/cmake/FindLibTorch.cmake DESTINATION ${package})
endif()
if(TARGET sgd_gloo_module)
  install(TARGETS sgd_gloo_module DESTINATION lib/sgd-launch)  # Where sgd-worker looks for it.
endif()
