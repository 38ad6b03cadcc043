# How this project declares its targets: one static library per folder, every
# .cpp in the folder belongs to it, and warnings are the same everywhere.
add_library(sgd_settings INTERFACE)
target_include_directories(sgd_settings INTERFACE ${CMAKE_SOURCE_DIR})
target_compile_definitions(sgd_settings INTERFACE SGD_VERSION="${PROJECT_VERSION}")
target_compile_options(sgd_settings INTERFACE
  # The same bits on every CPU: some have no multiply-add of one rounding, and compilers take it wherever there is one.
  -ffp-contract=off
  -Wall -Wextra -Wshadow -Wnon-virtual-dtor -Werror=switch -Werror=return-type
  # GCC 13 and later warn of the inside of library templates, wrongly (array-bounds).
  $<$<AND:$<BOOL:${SGD_WERROR}>,$<VERSION_LESS:$<CXX_COMPILER_VERSION>,13>>:-Werror>)
if(SGD_SANITIZE)
  target_compile_options(sgd_settings INTERFACE -fsanitize=${SGD_SANITIZE} -fno-omit-frame-pointer)
  target_link_options(sgd_settings INTERFACE -fsanitize=${SGD_SANITIZE})
  if(SGD_SANITIZE MATCHES "thread")  # Asio's fences, which it does not see, only double what Asio's locks order.
    target_compile_options(sgd_settings INTERFACE -Wno-tsan)
  endif()
endif()

# Where it is installed: the sanitized programs are linked in a second instead of half a minute.
find_program(SGD_MOLD mold)
if(SGD_MOLD)
  target_link_options(sgd_settings INTERFACE -fuse-ld=mold)
endif()
# Thin archives name their objects instead of copying them; nothing installs a library of ours.
set(CMAKE_CXX_ARCHIVE_CREATE "<CMAKE_AR> qcT <TARGET> <LINK_FLAGS> <OBJECTS>")
set(CMAKE_CXX_ARCHIVE_APPEND "<CMAKE_AR> qT <TARGET> <LINK_FLAGS> <OBJECTS>")

# Most of what a file costs is its headers and their templates: a folder that is compiled as one takes a quarter of the
# time of its files by themselves, and their objects a third of the room. 1: each by itself, which is quicker while one is
# changed.
set(SGD_BATCH 60 CACHE STRING "Files that are compiled as one")

# sgd_batches(<variable> <target> <file>...): the files to compile in place of the given ones. Names are relative to the
# source folder, so that a clone at another path hits the compiler cache.
function(sgd_batches variable target)
  list(LENGTH ARGN count)
  if(SGD_BATCH LESS_EQUAL 1 OR count LESS 2)
    set(${variable} ${ARGN} PARENT_SCOPE)
    return()
  endif()
  math(EXPR number "(${count} + ${SGD_BATCH} - 1) / ${SGD_BATCH}")
  math(EXPR last "${number} - 1")
  set(batches)
  foreach(batch RANGE ${last})
    math(EXPR begin "${batch} * ${count} / ${number}")
    math(EXPR length "(${batch} + 1) * ${count} / ${number} - ${begin}")
    list(SUBLIST ARGN ${begin} ${length} files)
    set(text)
    foreach(file ${files})
      file(RELATIVE_PATH name ${CMAKE_SOURCE_DIR} ${file})
      string(APPEND text "#include \"${name}\"\n")
    endforeach()
    list(APPEND batches ${CMAKE_CURRENT_BINARY_DIR}/${target}.batches/${batch}.cpp)
    file(CONFIGURE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/${target}.batches/${batch}.cpp CONTENT "${text}")
  endforeach()
  set(${variable} ${batches} PARENT_SCOPE)
endfunction()

# sgd_folder(<target> [<dependency>...]): the static library of the current folder. SGD_ALONE names files of it that are
# compiled by themselves, SGD_APART sub-folders that belong to other targets.
function(sgd_folder target)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cpp)
  foreach(folder ${SGD_APART})
    list(FILTER sources EXCLUDE REGEX "^${CMAKE_CURRENT_SOURCE_DIR}/${folder}/")
  endforeach()
  if(sources)
    list(TRANSFORM SGD_ALONE PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/ OUTPUT_VARIABLE alone)
    list(REMOVE_ITEM sources ${alone})
    sgd_batches(sources ${target} ${sources})
    add_library(${target} STATIC ${sources} ${alone})
    target_link_libraries(${target} PUBLIC sgd_settings ${ARGN})
  else()  # A folder of headers alone.
    add_library(${target} INTERFACE)
    target_link_libraries(${target} INTERFACE sgd_settings ${ARGN})
  endif()
endfunction()

# sgd_test(<target> <folder> [<dependency>...]): one Catch2 program from the .cpp files of a folder.
function(sgd_test target folder)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${folder}/*.cpp)
  sgd_batches(sources ${target} ${sources})
  add_executable(${target} ${sources})
  target_link_libraries(${target} PRIVATE sgd_settings sgd_test_main ${ARGN})
  add_test(NAME ${target} COMMAND ${target} ${${target}_arguments})
  set_tests_properties(${target} PROPERTIES TIMEOUT 300)
endfunction()

# sgd_test_cost(<test> <seconds> <cores>): what a test takes alone, and how many cores it keeps busy meanwhile. By these
# figures, which run_all.py --alone measures, run_all.py decides what runs at the same time.
function(sgd_test_cost test seconds cores)
  set_tests_properties(${test} PROPERTIES COST ${seconds} LABELS "cores=${cores}")
endfunction()
