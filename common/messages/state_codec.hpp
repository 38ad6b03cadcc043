#pragma once
// What the saved states of machines are made of and messages are not, in both directions: times, optional values, sets,
// queues, maps with numbers for keys, JSON whose keys have an order, and machines that are their State.

#include <array>
#include <chrono>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>

#include "common/messages/codec.hpp"

namespace sgd::codec {

namespace detail {
/// Items of an array, each given to `take(item, key)`.
template <class Take>
Status each_item(const Json& json, const std::string& key, const Take& take) {
  if (!json.is_array()) return wrong_type(key, "an array", json);
  for (std::size_t index = 0; index < json.size(); ++index)
    if (Status status = take(json[index], key + "[" + std::to_string(index) + "]"); !status) return status;
  return {};
}
template <class Items>
Json write_items(const Items& items) {
  Json array = Json::array();
  for (const auto& item : items) array.push_back(codec::write(item));
  return array;
}
}  // namespace detail

/// What was read at `key` of all kinds of messages, as the one kind that is kept there.
template <class Message, class Messages>
Status take_kind(Result<Messages> read, const std::string& key, Message& out) {
  if (!read) return read.error();
  auto* one = std::get_if<Message>(&read.value());
  if (one == nullptr) return Error{"\"" + key + "\" is another message"};
  out = std::move(*one);
  return {};
}

template <class Rep, class Period>
struct Coding<std::chrono::duration<Rep, Period>> {
  static Json write(const std::chrono::duration<Rep, Period>& value) { return value.count(); }
  static Status read(const Json& json, const std::string& key, std::chrono::duration<Rep, Period>& out) {
    Rep count{};
    Status status = codec::read(json, key, count);
    out = std::chrono::duration<Rep, Period>(count);
    return status;
  }
};

template <class Clock, class Length>
struct Coding<std::chrono::time_point<Clock, Length>> {
  using Time = std::chrono::time_point<Clock, Length>;
  static Json write(const Time& value) { return codec::write(value.time_since_epoch()); }
  static Status read(const Json& json, const std::string& key, Time& out) {
    Length since{};
    Status status = codec::read(json, key, since);
    out = Time(since);
    return status;
  }
};

/// Null: there is none. Not for values that may be null themselves.
template <class T>
struct Coding<std::optional<T>> {
  static Json write(const std::optional<T>& value) { return value ? codec::write(*value) : Json(nullptr); }
  static Status read(const Json& json, const std::string& key, std::optional<T>& out) {
    out.reset();
    return json.is_null() ? Status{} : codec::read(json, key, out.emplace());
  }
};

template <class T>
struct Coding<std::deque<T>> {
  static Json write(const std::deque<T>& value) { return detail::write_items(value); }
  static Status read(const Json& json, const std::string& key, std::deque<T>& out) {
    out.clear();
    return detail::each_item(json, key, [&out](const Json& item, const std::string& item_key) {
      return codec::read(item, item_key, out.emplace_back());
    });
  }
};

template <class T>
struct Coding<std::set<T>> {
  static Json write(const std::set<T>& value) { return detail::write_items(value); }
  static Status read(const Json& json, const std::string& key, std::set<T>& out) {
    out.clear();
    return detail::each_item(json, key, [&out](const Json& item, const std::string& item_key) -> Status {
      T one{};
      Status status = codec::read(item, item_key, one);
      if (status) out.insert(std::move(one));
      return status;
    });
  }
};

template <class T, std::size_t count>
struct Coding<std::array<T, count>> {
  static Json write(const std::array<T, count>& value) { return detail::write_items(value); }
  static Status read(const Json& json, const std::string& key, std::array<T, count>& out) {
    if (!json.is_array() || json.size() != count)
      return Error{"\"" + key + "\" must be an array of " + std::to_string(count)};
    for (std::size_t index = 0; index < count; ++index)
      if (Status status = codec::read(json[index], key, out[index]); !status) return status;
    return {};
  }
};

/// As an array of pairs, since JSON has no numbers for keys.
template <class Key, class T>
requires std::is_integral_v<Key>
struct Coding<std::map<Key, T>> {
  static Json write(const std::map<Key, T>& value) {
    Json array = Json::array();
    for (const auto& [number, item] : value) array.push_back(Json::array({codec::write(number), codec::write(item)}));
    return array;
  }
  static Status read(const Json& json, const std::string& key, std::map<Key, T>& out) {
    out.clear();
    return detail::each_item(json, key, [&out](const Json& pair, const std::string& item_key) -> Status {
      if (!pair.is_array() || pair.size() != 2) return Error{"\"" + item_key + "\" must be a pair"};
      Key number{};
      Status status = codec::read(pair[0], item_key, number);
      return status ? codec::read(pair[1], item_key, out[number]) : status;
    });
  }
};

/// As text: an object would lose the order of its keys.
template <>
struct Coding<nlohmann::ordered_json> {
  static Json write(const nlohmann::ordered_json& value) {
    return value.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  }
  static Status read(const Json& json, const std::string& key, nlohmann::ordered_json& out) {
    std::string text;
    if (Status status = codec::read(json, key, text); !status) return status;
    out = nlohmann::ordered_json::parse(text, nullptr, false);
    return out.is_discarded() ? Status(Error{"\"" + key + "\" is no JSON text"}) : Status{};
  }
};

/// A machine that is its State and nothing more.
template <class Machine>
requires requires(const Machine& machine) {
  typename Machine::State;
  machine.state();
}
struct Coding<Machine> {
  static Json write(const Machine& machine) { return codec::write(machine.state()); }
  static Status read(const Json& json, const std::string& key, Machine& out) {
    typename Machine::State state;
    Status status = codec::read(json, key, state);
    if (status) out = Machine(std::move(state));
    return status;
  }
};

/// An enum with name(): values up to `last` have one each.
template <class Enum, Enum last>
struct NamedCoding {
  static Json write(Enum value) { return name(value); }
  static Status read(const Json& json, const std::string& key, Enum& out) {
    std::string text;
    if (Status status = codec::read(json, key, text); !status) return status;
    for (int value = 0; value <= static_cast<int>(last); ++value) {
      if (text != name(static_cast<Enum>(value))) continue;
      out = static_cast<Enum>(value);
      return {};
    }
    return Error{"\"" + key + "\" has the unknown value \"" + text + "\""};
  }
};

}  // namespace sgd::codec
