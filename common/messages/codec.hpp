#pragma once
// One description per message, from which both directions are made: the name in "type" and the
// fields with their keys stand in a single kMessage specialization, so that no second table can
// drift. A protocol is its variant; no list of names exists beside it.
//
// Decoding never throws: unknown fields are ignored, a missing field keeps the struct's default
// unless it is required, a wrong type is an Error in words. Depth is limited before parsing,
// because copying and printing of a nlohmann value recurse.

#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include <boost/pfr/tuple_size.hpp>

#include "common/base/result.hpp"
#include "common/json/nlohmann.hpp"
#include "common/json/shared.hpp"
#include "common/json/words.hpp"

namespace sgd::codec {

using Json = nlohmann::json;

enum class FieldKind {
  kOptional,  ///< Missing: the struct's default.
  kRequired,  ///< Missing: the message makes no sense.
  kMetrics,   ///< An object whose nulls stand for NaN, which JSON cannot write; infinite numbers are written as text.
};

template <class Owner, class Member>
struct Field {
  const char* key;        ///< In the JSON object.
  Member Owner::*member;  ///< Where the value lives.
  FieldKind kind;
};

template <class... Fields>
struct Description {
  const char* type;  ///< Value of "type", or empty for a part of other messages.
  std::tuple<Fields...> fields;
};

template <class Owner, class Member>
constexpr auto optional(const char* key, Member Owner::*member) {
  return Field<Owner, Member>{key, member, FieldKind::kOptional};
}
template <class Owner, class Member>
constexpr auto required(const char* key, Member Owner::*member) {
  return Field<Owner, Member>{key, member, FieldKind::kRequired};
}
template <class Owner>
constexpr auto metrics(const char* key, Json Owner::*member) {
  return Field<Owner, Json>{key, member, FieldKind::kMetrics};
}
template <class... Fields>
constexpr auto message(const char* type, Fields... fields) {
  return Description<Fields...>{type, std::tuple<Fields...>{fields...}};
}

/// Specialized for every message and part.
template <class T>
inline constexpr auto kMessage = nullptr;
/// Specialized for every enum: std::array of pairs (value, name).
template <class T>
inline constexpr auto kEnumNames = nullptr;

/// The parsed object, or why `text` is none. `depth_max` levels of brackets at most.
[[nodiscard]] Result<Json> parse_object(std::string_view text, int depth_max);
/// Printed in one line; bytes that are no UTF-8 become U+FFFD.
[[nodiscard]] std::string print(const Json& json);
/// Replaces nulls among the values by NaN.
void nulls_to_nan(Json& object);
/// Replaces infinite numbers among the values by "Infinity" and "-Infinity": as null they would be left out of a mean.
void infinities_to_text(Json& object);
/// Replaces that text by null, as readers of a line of metrics have it.
void infinity_texts_to_null(Json& object);
/// The number that such text stands for; nothing for anything else.
[[nodiscard]] std::optional<double> infinity_of(const Json& value);

/// Specialized for types that are no message: write(value) -> Json, read(json, key, out) -> Status.
template <class T>
struct Coding {};
template <class T>
concept HasCoding = requires(const T& value) {
  Coding<T>::write(value);
};

template <>
struct Coding<SharedJson> {
  static Json write(const SharedJson& value) { return *value; }
  static Status read(const Json& json, const std::string&, SharedJson& out) {
    out = json;
    return {};
  }
};

namespace detail {
template <class T>
struct IsVector : std::false_type {};
template <class T>
struct IsVector<std::vector<T>> : std::true_type {};
template <class T>
struct IsMap : std::false_type {};
template <class T>
struct IsMap<std::map<std::string, T>> : std::true_type {};
template <class T>
struct IsVariant : std::false_type {};
template <class... Ts>
struct IsVariant<std::variant<Ts...>> : std::true_type {};

[[nodiscard]] inline Error wrong_type(const std::string& key, const char* wanted, const Json& got) {
  return Error{"\"" + key + "\" must be " + wanted + ", got " + json::type_in_words(got)};
}
}  // namespace detail

template <class T>
Json write(const T& value);
template <class T>
Status read(const Json& json, const std::string& key, T& out);

/// A field that was added to a struct and forgotten here would silently not travel.
template <class T, class... Fields>
constexpr bool covers(const Description<Fields...>&) {
  return boost::pfr::tuple_size_v<T> == sizeof...(Fields);
}

template <class T, class F>
Json write_field(const T& value, const F& field) {
  Json written = write(value.*(field.member));
  if (field.kind == FieldKind::kMetrics) infinities_to_text(written);
  return written;
}

template <class T>
Json write_fields(const T& value) {
  static_assert(covers<T>(kMessage<T>), "describe every field in kMessage");
  Json object = Json::object();
  if (*kMessage<T>.type != '\0') object["type"] = kMessage<T>.type;
  std::apply([&](const auto&... field) { ((object[field.key] = write_field(value, field)), ...); }, kMessage<T>.fields);
  return object;
}

template <class T, class F>
Status read_field(const Json& object, const F& field, T& out) {
  const auto found = object.find(field.key);
  if (found == object.end()) {
    if (field.kind != FieldKind::kRequired) return {};
    return Error{std::string("\"") + field.key + "\" is missing"};
  }
  Status status = read(*found, field.key, out.*(field.member));
  if constexpr (std::is_same_v<std::remove_cvref_t<decltype(out.*(field.member))>, Json>) {
    if (field.kind == FieldKind::kMetrics) {
      if (!found->is_object()) return detail::wrong_type(field.key, "an object", *found);
      nulls_to_nan(out.*(field.member));
    }
  }
  return status;
}

template <class T>
Status read_fields(const Json& object, T& out) {
  Status status;
  std::apply([&](const auto&... field) { (void)((status = read_field(object, field, out)).ok() && ...); },
             kMessage<T>.fields);
  return status;
}

template <class... Ts>
Json write_variant(const std::variant<Ts...>& value) {
  return std::visit([](const auto& alternative) { return write_fields(alternative); }, value);
}

/// The alternative that "type" names; nothing when no alternative has that name.
template <class... Ts>
Result<std::optional<std::variant<Ts...>>> read_variant(const Json& object) {
  using Variant = std::variant<Ts...>;
  const auto type = object.find("type");
  if (type == object.end()) return Error{"\"type\" is missing"};
  if (!type->is_string()) return detail::wrong_type("type", "a string", *type);
  const std::string& name = type->template get_ref<const std::string&>();
  std::optional<Variant> out;
  Status status;
  const auto try_one = [&]<class T>(std::type_identity<T>) {
    if (*kMessage<T>.type == '\0' || name != kMessage<T>.type) return false;
    T value;
    status = read_fields(object, value);
    out = std::move(value);
    return true;
  };
  (void)(try_one(std::type_identity<Ts>{}) || ...);
  if (!status.ok()) return Error{name + ": " + status.error().message};
  return out;
}

template <class T>
Status read_number(const Json& json, const std::string& key, T& out) {
  if constexpr (std::is_same_v<T, bool>) {
    if (!json.is_boolean()) return detail::wrong_type(key, "true or false", json);
    out = json.get<bool>();
  } else if constexpr (std::is_floating_point_v<T>) {
    if (!json.is_number() && !json.is_null()) return detail::wrong_type(key, "a number", json);
    out = json.is_null() ? std::numeric_limits<T>::quiet_NaN() : json.get<T>();
  } else {
    if (!json.is_number_integer()) return detail::wrong_type(key, "an integer", json);
    const bool fits = json.is_number_unsigned() ? std::in_range<T>(json.get<std::uint64_t>())
                                                : std::in_range<T>(json.get<std::int64_t>());
    if (!fits) return Error{"\"" + key + "\" is out of range: " + print(json)};
    out = json.get<T>();
  }
  return {};
}

template <class T>
Status read_enum(const Json& json, const std::string& key, T& out) {
  if (!json.is_string()) return detail::wrong_type(key, "a string", json);
  for (const auto& [value, name] : kEnumNames<T>) {
    if (json.get_ref<const std::string&>() == name) {
      out = value;
      return {};
    }
  }
  return Error{"\"" + key + "\" has the unknown value " + print(json)};
}

template <class T>
Status read_container(const Json& json, const std::string& key, T& out) {
  const bool map = detail::IsMap<T>::value;
  if (map ? !json.is_object() : !json.is_array()) {
    return detail::wrong_type(key, map ? "an object" : "an array", json);
  }
  out.clear();
  for (auto item = json.begin(); item != json.end(); ++item) {
    if constexpr (detail::IsMap<T>::value) {
      const Status status = read(*item, key + "." + item.key(), out[item.key()]);
      if (!status.ok()) return status;
    } else {
      const std::string item_key = key + "[" + std::to_string(out.size()) + "]";
      const Status status = read(*item, item_key, out.emplace_back());
      if (!status.ok()) return status;
    }
  }
  return {};
}

template <class T>
Status read_part(const Json& json, const std::string& key, T& out) {
  if (!json.is_object()) return detail::wrong_type(key, "an object", json);
  if constexpr (detail::IsVariant<T>::value) {
    auto found = [&]<class... Ts>(std::type_identity<std::variant<Ts...>>) {
      return read_variant<Ts...>(json);
    }(std::type_identity<T>{});
    if (!found.ok()) return Error{key + ": " + found.error().message};
    if (!found.value()) return Error{key + ": unknown type " + print(json["type"])};
    out = std::move(*found.value());
    return {};
  } else {
    const Status status = read_fields(json, out);
    if (!status.ok()) return Error{key + ": " + status.error().message};
    return {};
  }
}

template <class T>
Json write(const T& value) {
  if constexpr (HasCoding<T>) {
    return Coding<T>::write(value);
  } else if constexpr (std::is_same_v<T, Json> || std::is_same_v<T, std::string> || std::is_arithmetic_v<T>) {
    return value;
  } else if constexpr (std::is_enum_v<T>) {
    for (const auto& [known, name] : kEnumNames<T>) {
      if (known == value) return name;
    }
    SGD_ASSERT(!"enumerator without a name");
    return nullptr;
  } else if constexpr (detail::IsVector<T>::value) {
    Json array = Json::array();
    for (const auto& item : value) array.push_back(write(item));
    return array;
  } else if constexpr (detail::IsMap<T>::value) {
    Json object = Json::object();
    for (const auto& [key, item] : value) object[key] = write(item);
    return object;
  } else if constexpr (detail::IsVariant<T>::value) {
    return write_variant(value);
  } else {
    return write_fields(value);
  }
}

template <class T>
Status read(const Json& json, const std::string& key, T& out) {
  if constexpr (HasCoding<T>) {
    return Coding<T>::read(json, key, out);
  } else if constexpr (std::is_same_v<T, Json>) {
    out = json;
    return {};
  } else if constexpr (std::is_same_v<T, std::string>) {
    if (!json.is_string()) return detail::wrong_type(key, "a string", json);
    out = json.get<std::string>();
    return {};
  } else if constexpr (std::is_arithmetic_v<T>) {
    return read_number(json, key, out);
  } else if constexpr (std::is_enum_v<T>) {
    return read_enum(json, key, out);
  } else if constexpr (detail::IsVector<T>::value || detail::IsMap<T>::value) {
    return read_container(json, key, out);
  } else {
    return read_part(json, key, out);
  }
}

/// Deepest nesting of a message between our own programs: a job (64) inside two envelopes, with room.
inline constexpr int kDepthMax = 80;

/// A message of a protocol without an Unknown alternative; an unknown type is an error there.
template <class Variant>
Result<Variant> decode(std::string_view text, int depth_max = kDepthMax) {
  Result<Json> object = parse_object(text, depth_max);
  if (!object.ok()) return object.error();
  Variant out;
  const Status status = read_part(object.value(), "message", out);
  if (!status.ok()) return status.error();
  return out;
}

}  // namespace sgd::codec
