#pragma once
// Bytes of small data files, as other programs write them.

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace sgd::test {

/// Numbers as they lie in memory.
template <class Number>
std::string bytes_of(const std::vector<Number>& numbers) {
  std::string bytes(numbers.size() * sizeof(Number), '\0');
  if (!bytes.empty()) std::memcpy(bytes.data(), numbers.data(), bytes.size());
  return bytes;
}

/// A .npy file with this header text, padded as NumPy pads it.
inline std::string npy_file(std::string header, const std::string& payload, int version = 1) {
  const std::size_t prefix = version == 1 ? 10 : 12;
  while ((prefix + header.size() + 1) % 64 != 0) header.push_back(' ');
  header.push_back('\n');
  std::string bytes = std::string("\x93NUMPY", 6) + static_cast<char>(version) + '\0';
  for (std::size_t shift = 0; shift < (version == 1 ? 16 : 32); shift += 8)
    bytes.push_back(static_cast<char>(header.size() >> shift & 0xff));
  return bytes + header + payload;
}

/// The header that NumPy writes.
inline std::string npy_header(const std::string& descr, const std::string& shape) {
  return "{'descr': '" + descr + "', 'fortran_order': False, 'shape': " + shape + ", }";
}

/// A record of CIFAR: its labels, and 3072 bytes that are `first`, `first` + 1 and so on.
inline std::string cifar_record(const std::string& labels, int first) {
  std::string record = labels;
  for (int i = 0; i < 3072; ++i) record.push_back(static_cast<char>(first + i));
  return record;
}

}  // namespace sgd::test
