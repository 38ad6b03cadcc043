#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <set>

#include <fmt/format.h>

#include "common/base/assert.hpp"
#include "common/json/nlohmann.hpp"
#include "worker/core/safetensors.hpp"

namespace sgd::worker {
namespace {

static_assert(std::endian::native == std::endian::little, "The data of the format is little-endian.");

constexpr std::uint64_t kHeaderBytesMax = 100'000'000;  // The format's own limit.
constexpr std::size_t kDimensionsMax = 64;
constexpr int kDepthMax = 3;  // Header, entry, shape.

struct TypeRow {
  TensorType type;
  const char* name;
  std::size_t bytes;
};
constexpr std::array<TypeRow, 13> kTypes = {{{TensorType::kBool, "BOOL", 1},
                                             {TensorType::kU8, "U8", 1},
                                             {TensorType::kI8, "I8", 1},
                                             {TensorType::kI16, "I16", 2},
                                             {TensorType::kU16, "U16", 2},
                                             {TensorType::kF16, "F16", 2},
                                             {TensorType::kBF16, "BF16", 2},
                                             {TensorType::kI32, "I32", 4},
                                             {TensorType::kU32, "U32", 4},
                                             {TensorType::kF32, "F32", 4},
                                             {TensorType::kI64, "I64", 8},
                                             {TensorType::kU64, "U64", 8},
                                             {TensorType::kF64, "F64", 8}}};

const TypeRow& row_of(TensorType type) {
  const auto row = std::find_if(kTypes.begin(), kTypes.end(), [&](const TypeRow& r) { return r.type == type; });
  SGD_ASSERT(row != kTypes.end());
  return *row;
}

// The header as JSON; nothing when it is not one object whose names occur once.
nlohmann::json parse_header(const char* begin, std::size_t size, std::string& problem) {
  std::set<std::string> names;
  const auto watch = [&](int depth, nlohmann::json::parse_event_t event, nlohmann::json& value) {
    if (event == nlohmann::json::parse_event_t::key && depth == 1 && !names.insert(value.get<std::string>()).second) {
      problem = "the name '" + value.get<std::string>() + "' occurs twice";
    }
    // Deeper values are not even built: printing or copying them would recurse as deep as the file says.
    const bool opens =
        event == nlohmann::json::parse_event_t::object_start || event == nlohmann::json::parse_event_t::array_start;
    if (!opens || depth < kDepthMax) return true;
    problem = "its header is nested too deep";
    return false;
  };
  nlohmann::json header = nlohmann::json::parse(begin, begin + size, watch, false);
  if (header.is_discarded() || !header.is_object()) problem = "its header is not a JSON object";
  return header;
}

bool multiply(std::uint64_t& value, std::uint64_t factor) {
  return !__builtin_mul_overflow(value, factor, &value);
}

// Fills `tensor` from its header entry; returns what is wrong, or an empty string.
std::string read_entry(const nlohmann::json& entry, std::span<const std::byte> data, TensorBytes& tensor,
                       std::uint64_t& begin) {
  if (!entry.is_object() || entry.size() != 3 || !entry.contains("dtype") || !entry.contains("shape") ||
      !entry.contains("data_offsets")) {
    return "must have exactly dtype, shape and data_offsets";
  }
  const nlohmann::json& dtype = entry["dtype"];
  const auto type = dtype.is_string() ? tensor_type_named(dtype.get_ref<const std::string&>()) : std::nullopt;
  if (!type) return "has the unknown dtype " + dtype.dump();
  tensor.type = *type;

  const nlohmann::json& shape = entry["shape"];
  if (!shape.is_array() || shape.size() > kDimensionsMax) return "has no usable shape";
  std::uint64_t bytes = size_of(*type);
  for (const nlohmann::json& extent : shape) {
    if (!extent.is_number_unsigned() || extent.get<std::uint64_t>() > INT64_MAX) return "has a bad extent in its shape";
    tensor.shape.push_back(extent.get<std::int64_t>());
    if (!multiply(bytes, extent.get<std::uint64_t>())) return "has a shape that is too large";
  }

  const nlohmann::json& offsets = entry["data_offsets"];
  if (!offsets.is_array() || offsets.size() != 2 || !offsets[0].is_number_unsigned() ||
      !offsets[1].is_number_unsigned()) {
    return "has no usable data_offsets";
  }
  begin = offsets[0].get<std::uint64_t>();
  const auto end = offsets[1].get<std::uint64_t>();
  if (begin > end || end > data.size()) return fmt::format("lies outside the file's {} data bytes", data.size());
  if (end - begin != bytes) return fmt::format("has {} bytes of data where its shape needs {}", end - begin, bytes);
  tensor.bytes = data.subspan(begin, end - begin);
  return {};
}

std::string read_metadata(const nlohmann::json& value, std::map<std::string, std::string>& metadata) {
  if (!value.is_object()) return "__metadata__ is not an object";
  for (const auto& [key, text] : value.items()) {
    if (!text.is_string()) return "__metadata__ holds something that is not text: " + key;
    metadata[key] = text.get<std::string>();
  }
  return {};
}

struct Placed {
  std::uint64_t begin;  // Offset in the data.
  TensorBytes tensor;
};

// Sorts by place, and wants each to begin where the one before ends, up to the last byte.
std::string check_cover(std::vector<Placed>& placed, std::size_t data_bytes) {
  std::sort(placed.begin(), placed.end(), [](const Placed& a, const Placed& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.tensor.bytes.size() < b.tensor.bytes.size();
  });
  std::uint64_t end = 0;
  for (const Placed& p : placed) {
    if (p.begin < end) return "'" + p.tensor.name + "' overlaps the tensor before it";
    if (p.begin > end) return "there is a gap in the data before '" + p.tensor.name + "'";
    end += p.tensor.bytes.size();
  }
  if (end != data_bytes) return fmt::format("{} data bytes belong to no tensor", data_bytes - end);
  return {};
}

}  // namespace

std::size_t size_of(TensorType type) {
  return row_of(type).bytes;
}
const char* name_of(TensorType type) {
  return row_of(type).name;
}

std::optional<TensorType> tensor_type_named(std::string_view name) {
  for (const TypeRow& row : kTypes) {
    if (name == row.name) return row.type;
  }
  return std::nullopt;
}

Result<SafetensorsFile> SafetensorsFile::open(const std::string& path) {
  Result<MappedFile> mapped = MappedFile::open(path);
  if (!mapped) return mapped.error();
  SafetensorsFile file(std::move(mapped).value());
  const auto bad = [&](const std::string& what) { return Error{path + ": not a valid safetensors file: " + what, 0}; };
  const std::span<const std::byte> bytes = file.file_.bytes();
  std::uint64_t header_bytes = 0;
  if (bytes.size() < sizeof(header_bytes)) return bad("it is too short");
  std::memcpy(&header_bytes, bytes.data(), sizeof(header_bytes));
  if (header_bytes > kHeaderBytesMax) return bad("its header would have " + std::to_string(header_bytes) + " bytes");
  if (header_bytes > bytes.size() - sizeof(header_bytes)) return bad("it ends within its header");

  std::string problem;
  const auto* text = reinterpret_cast<const char*>(bytes.data() + sizeof(header_bytes));
  const nlohmann::json header = parse_header(text, header_bytes, problem);
  if (!problem.empty()) return bad(problem);
  const auto data = bytes.subspan(sizeof(header_bytes) + header_bytes);
  std::vector<Placed> placed;
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") {
      problem = read_metadata(entry, file.metadata_);
    } else {
      Placed& p = placed.emplace_back();
      p.tensor.name = name;
      problem = read_entry(entry, data, p.tensor, p.begin);
      if (!problem.empty()) problem = "'" + name + "' " + problem;
    }
    if (!problem.empty()) return bad(problem);
  }
  problem = check_cover(placed, data.size());
  if (!problem.empty()) return bad(problem);
  for (Placed& p : placed) file.tensors_.push_back(std::move(p.tensor));
  return file;
}

const TensorBytes* SafetensorsFile::find(std::string_view name) const {
  for (const TensorBytes& tensor : tensors_) {
    if (tensor.name == name) return &tensor;
  }
  return nullptr;
}

}  // namespace sgd::worker
