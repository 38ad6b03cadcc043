# Everything from outside, found once. Versions and reasons are in third_party/README.md.
# Boost 1.74 (Debian's default) lacks as_tuple, cancellation slots and Process v2.
set(Boost_USE_STATIC_LIBS ON)  # sgd-launch starts in milliseconds: fewer shared objects to load.
find_package(Boost 1.81 REQUIRED COMPONENTS filesystem program_options)
find_package(nlohmann_json 3.11 REQUIRED)
find_package(fmt 9 REQUIRED)
find_package(ZLIB REQUIRED)
find_package(OpenSSL 3.0 REQUIRED)
find_package(Threads REQUIRED)
find_package(JPEG REQUIRED)  # These two are the worker's alone.
find_package(PNG 1.6 REQUIRED)

# Linked whole, like Boost: a shared object would be loaded at every start, and embedded runs never use it.
find_path(SQLite_INCLUDE_DIR sqlite3.h REQUIRED)
find_library(SQLite_STATIC_LIBRARY libsqlite3.a REQUIRED)
add_library(SQLite::Static INTERFACE IMPORTED)
target_include_directories(SQLite::Static SYSTEM INTERFACE ${SQLite_INCLUDE_DIR})
target_link_libraries(SQLite::Static INTERFACE ${SQLite_STATIC_LIBRARY} Threads::Threads ${CMAKE_DL_LIBS} m)

# The same: only `plot --png` uses it.
find_path(PNG_INCLUDE_DIR png.h REQUIRED)
find_library(PNG_STATIC_LIBRARY NAMES libpng16.a libpng.a REQUIRED)
add_library(PNG::Static INTERFACE IMPORTED)
target_include_directories(PNG::Static SYSTEM INTERFACE ${PNG_INCLUDE_DIR})
target_link_libraries(PNG::Static INTERFACE ${PNG_STATIC_LIBRARY} ZLIB::ZLIB m)

if(fmt_VERSION VERSION_LESS 11)
  add_library(sgd_fmt STATIC ${CMAKE_SOURCE_DIR}/third_party/fmt.cpp)
  target_link_libraries(sgd_fmt PUBLIC sgd_settings)
else()
  add_library(sgd_fmt INTERFACE)
  target_link_libraries(sgd_fmt INTERFACE fmt::fmt-header-only)
endif()

add_library(sgd_asio STATIC ${CMAKE_SOURCE_DIR}/third_party/asio.cpp)
target_compile_definitions(sgd_asio PUBLIC BOOST_ASIO_SEPARATE_COMPILATION)
target_link_libraries(sgd_asio PUBLIC sgd_settings Boost::headers Threads::Threads)

if(SGD_WITH_TORCH)
  find_package(LibTorch REQUIRED)
  # Its headers bring an fmt of their own, of another version and without its library.
  target_compile_definitions(LibTorch::cpu INTERFACE FMT_HEADER_ONLY=1)
endif()
