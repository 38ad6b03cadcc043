# `cmake --install build/release --prefix DIR`: the programs, what plug-ins are built against, man pages, completions. Nothing
# knows DIR, so the folder may be moved. The build folder itself serves as a package, too: -DSgdLaunch_DIR=build/release/cmake.
# `scripts/package` makes a Debian package of the same files and of the component "system", which belongs to /usr alone.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
install(TARGETS sgd-launch)
if(SGD_WITH_TORCH)
  install(TARGETS sgd-worker)
  # LibTorch is not installed: it is where it was when sgd-worker was linked, or in lib/sgd-launch/torch, which may be a link.
  # Linked so from the start: for a path that is replaced later CMake keeps room by empty ones, each of which is to the
  # loader the folder in which somebody starts the program, and whose libraries would be taken.
  set_target_properties(sgd-worker PROPERTIES INSTALL_RPATH_USE_LINK_PATH ON BUILD_WITH_INSTALL_RPATH ON
                        INSTALL_RPATH "$ORIGIN/../lib/sgd-launch/torch/lib")
  install(DIRECTORY worker/include/sgd DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
  set(package ${CMAKE_INSTALL_LIBDIR}/cmake/SgdLaunch)
  install(FILES ${CMAKE_BINARY_DIR}/lib/libsgd-worker.a DESTINATION ${CMAKE_INSTALL_LIBDIR}/sgd-launch)
  install(FILES ${CMAKE_BINARY_DIR}/lib/libsgd-client.a DESTINATION ${CMAKE_INSTALL_LIBDIR}/sgd-launch)
  install(DIRECTORY launcher/client/include/sgd DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
  file(RELATIVE_PATH SGD_HEADERS /${package} /${CMAKE_INSTALL_INCLUDEDIR})
  file(RELATIVE_PATH SGD_ARCHIVE /${package} /${CMAKE_INSTALL_LIBDIR}/sgd-launch/libsgd-worker.a)
  file(RELATIVE_PATH SGD_MODULES /${package} /lib/sgd-launch)
  file(RELATIVE_PATH SGD_CLIENT /${package} /${CMAKE_INSTALL_LIBDIR}/sgd-launch/libsgd-client.a)
  file(RELATIVE_PATH SGD_LAUNCH /${package} /${CMAKE_INSTALL_BINDIR}/sgd-launch)
  set(SGD_CLIENT_HEADERS ${SGD_HEADERS})
  configure_file(third_party/cmake/SgdLaunchConfig.cmake.in ${CMAKE_BINARY_DIR}/install/SgdLaunchConfig.cmake @ONLY)
  file(RELATIVE_PATH SGD_HEADERS ${CMAKE_BINARY_DIR}/cmake ${CMAKE_SOURCE_DIR}/worker/include)
  set(SGD_ARCHIVE ../lib/libsgd-worker.a)
  set(SGD_MODULES ../lib)
  file(RELATIVE_PATH SGD_CLIENT_HEADERS ${CMAKE_BINARY_DIR}/cmake ${CMAKE_SOURCE_DIR}/launcher/client/include)
  set(SGD_CLIENT ../lib/libsgd-client.a)
  set(SGD_LAUNCH ../bin/sgd-launch)
  configure_file(third_party/cmake/SgdLaunchConfig.cmake.in ${CMAKE_BINARY_DIR}/cmake/SgdLaunchConfig.cmake @ONLY)
  configure_file(third_party/cmake/FindLibTorch.cmake ${CMAKE_BINARY_DIR}/cmake/FindLibTorch.cmake COPYONLY)
  write_basic_package_version_file(${CMAKE_BINARY_DIR}/cmake/SgdLaunchConfigVersion.cmake COMPATIBILITY ExactVersion)
  install(FILES ${CMAKE_BINARY_DIR}/install/SgdLaunchConfig.cmake ${CMAKE_BINARY_DIR}/cmake/SgdLaunchConfigVersion.cmake
                third_party/cmake/FindLibTorch.cmake DESTINATION ${package})
endif()
if(TARGET sgd_gloo_module)
  install(TARGETS sgd_gloo_module DESTINATION lib/sgd-launch)  # Where sgd-worker looks for it.
endif()
# Whoever installs builds this before.
add_custom_target(sgd_installed DEPENDS sgd-launch sgd_collective_c)
if(SGD_WITH_TORCH)
  add_dependencies(sgd_installed sgd-worker sgd_worker_archive sgd_client)
endif()
if(TARGET sgd_gloo_module)
  add_dependencies(sgd_installed sgd_gloo_module)
endif()
install(FILES configs/job.schema.json DESTINATION share/sgd-launch)
file(GLOB examples CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/configs/*.json)
list(FILTER examples EXCLUDE REGEX "job.schema.json$")
install(FILES ${examples} DESTINATION share/doc/sgd-launch/examples)
install(FILES README.md DESTINATION share/doc/sgd-launch)
# What the README links to, where its links look for it.
file(READ README.md readme)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/README.md)
string(REPLACE "](" "@link " readme "${readme}")  # A list's elements must have no bracket.
string(REGEX MATCHALL "@link [^)#:]+" links "${readme}")
list(TRANSFORM links REPLACE "^@link " "")
list(REMOVE_DUPLICATES links)
foreach(link ${links})
  if(EXISTS ${CMAKE_SOURCE_DIR}/${link})
    get_filename_component(folder ${link} DIRECTORY)
    install(FILES ${link} DESTINATION share/doc/sgd-launch/${folder})
  endif()
endforeach()
install(FILES LICENSE DESTINATION share/doc/sgd-launch RENAME copyright)
# Made of what the installed program says of itself.
install(CODE "
  set(prefix \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}\")
  execute_process(COMMAND /usr/bin/python3 -B ${CMAKE_SOURCE_DIR}/scripts/generate.py share \${prefix}/bin/sgd-launch \${prefix}/share
                  RESULT_VARIABLE failed)
  if(failed)
    message(WARNING \"no man pages and completions: scripts/generate.py has failed (\${failed})\")
  endif()")

set(units scripts/systemd)
install(FILES ${units}/sgd-launch-coordinator.service ${units}/sgd-launch-agent.service
        DESTINATION lib/systemd/system COMPONENT system EXCLUDE_FROM_ALL)
install(FILES ${units}/sgd-launch.sysusers.conf DESTINATION lib/sysusers.d RENAME sgd-launch.conf
        COMPONENT system EXCLUDE_FROM_ALL)
install(FILES ${units}/sgd-launch.default DESTINATION /etc/default RENAME sgd-launch COMPONENT system EXCLUDE_FROM_ALL)
install(FILES ${units}/sgd-launch-agent.service.d/owners.conf.example ${units}/sgd-launch-agent.service.d/gpu.conf.example
        DESTINATION share/doc/sgd-launch/sgd-launch-agent.service.d COMPONENT system EXCLUDE_FROM_ALL)

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME sgd-launch)
set(CPACK_PACKAGE_CONTACT "the authors of sgd-launch <sgd-launch@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "distributed training that survives failures")
set(CPACK_PACKAGE_DIRECTORY ${CMAKE_BINARY_DIR}/package)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_INSTALL_CMAKE_PROJECTS "${CMAKE_BINARY_DIR};sgd-launch;Unspecified;/;${CMAKE_BINARY_DIR};sgd-launch;system;/")
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)  # But for LibTorch, which is in no package.
if(SGD_WITH_TORCH)
  get_filename_component(torch_libraries ${LibTorch_CPU_LIBRARY} DIRECTORY)
  set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${torch_libraries})
endif()
# The units reload by kill.
set(CPACK_DEBIAN_PACKAGE_DEPENDS procps)
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS python3)
set(CPACK_DEBIAN_PACKAGE_SUGGESTS "systemd, dataset-fashion-mnist")
file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/debian)
file(WRITE ${CMAKE_BINARY_DIR}/debian/conffiles "/etc/default/sgd-launch\n")
set(CPACK_DEBIAN_PACKAGE_CONTROL_EXTRA ${CMAKE_BINARY_DIR}/debian/conffiles ${CMAKE_SOURCE_DIR}/scripts/debian/postinst
    ${CMAKE_SOURCE_DIR}/scripts/debian/prerm ${CMAKE_SOURCE_DIR}/scripts/debian/postrm)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
include(CPack)
