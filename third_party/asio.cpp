// The parts of Boost.Asio that are no templates, compiled once instead of in every file that includes its headers.
#include <boost/asio/impl/src.hpp>
