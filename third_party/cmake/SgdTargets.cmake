# How this project declares its targets: one static library per folder, every
# .cpp in the folder belongs to it, and warnings are the same everywhere.
add_library(sgd_settings INTERFACE)
target_include_directories(sgd_settings INTERFACE ${CMAKE_SOURCE_DIR})
target_compile_definitions(sgd_settings INTERFACE SGD_VERSION="${PROJECT_VERSION}")
target_compile_options(sgd_settings INTERFACE
  -Wall -Wextra -Wshadow -Wnon-virtual-dtor -Werror=switch -Werror=return-type
  $<$<BOOL:${SGD_WERROR}>:-Werror>)
if(SGD_SANITIZE)
  target_compile_options(sgd_settings INTERFACE -fsanitize=${SGD_SANITIZE} -fno-omit-frame-pointer)
  target_link_options(sgd_settings INTERFACE -fsanitize=${SGD_SANITIZE})
endif()

# Where it is installed: the sanitized programs are linked in a second instead of half a minute.
find_program(SGD_MOLD mold)
if(SGD_MOLD)
  target_link_options(sgd_settings INTERFACE -fuse-ld=mold)
endif()
# Thin archives name their objects instead of copying them; nothing installs a library of ours.
set(CMAKE_CXX_ARCHIVE_CREATE "<CMAKE_AR> qcT <TARGET> <LINK_FLAGS> <OBJECTS>")
set(CMAKE_CXX_ARCHIVE_APPEND "<CMAKE_AR> qT <TARGET> <LINK_FLAGS> <OBJECTS>")

# sgd_folder(<target> [<dependency>...]): the static library of the current folder.
function(sgd_folder target)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cpp)
  if(sources)
    add_library(${target} STATIC ${sources})
    target_link_libraries(${target} PUBLIC sgd_settings ${ARGN})
  else()  # A folder of headers alone.
    add_library(${target} INTERFACE)
    target_link_libraries(${target} INTERFACE sgd_settings ${ARGN})
  endif()
endfunction()

# sgd_test(<target> <folder> [<dependency>...]): one Catch2 program from the .cpp files of a folder.
function(sgd_test target folder)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${folder}/*.cpp)
  add_executable(${target} ${sources})
  target_link_libraries(${target} PRIVATE sgd_settings sgd_test_main ${ARGN})
  add_test(NAME ${target} COMMAND ${target} ${${target}_arguments})
  set_tests_properties(${target} PROPERTIES TIMEOUT 300)
endfunction()
