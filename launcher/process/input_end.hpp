#pragma once
// Whether somebody still holds the other end of a pipe, our standard input perhaps. A program that was started with one
// ends with whoever started it, however that one ends.

#include <functional>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>

namespace sgd::process {

class InputEnd {
 public:
  /// `io` must outlive it. `done` is called once, never inside. What is written to us is not kept. `fd` stays open.
  InputEnd(boost::asio::io_context& io, int fd, std::function<void()> done);

 private:
  void wait();

  std::function<void()> done_;
  boost::asio::posix::stream_descriptor input_;
};

}  // namespace sgd::process
