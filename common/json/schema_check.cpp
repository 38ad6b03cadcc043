// The walk of a document along its schema that collects every error. An error inside a wrong
// value is not looked for: one mistake, one message.

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "common/json/key_index.hpp"
#include "common/json/pattern.hpp"
#include "common/json/schema.hpp"
#include "common/json/suggest.hpp"
#include "common/json/words.hpp"

namespace sgd::json {
namespace {

using nlohmann::json;

/// Where errors of a value are shown; values without a place of their own use that of what is around them.
struct Where {
  std::string source;
  Position key;
  Position value;
};

const char* words_of_type(const std::string& type) {
  if (type == "boolean") return "true or false";
  if (type == "object") return "an object";
  if (type == "array") return "an array";
  if (type == "integer") return "an integer";
  return type == "string" ? "a string" : "a number";
}

/// "training.loss" as the subject of a sentence; the root has no name.
std::string subject(const std::string& path) {
  return path.empty() ? "the job" : quote(path);
}

/// `a.b` of `a[2].b`: where the schema has it.
std::string without_indices(std::string path) {
  for (std::size_t begin; (begin = path.find('[')) != std::string::npos;) {
    path.erase(begin, path.find(']', begin) - begin + 1);
  }
  return path;
}

/// True when `text` has a match of `pattern`. The schema's few patterns are compiled once a thread: to compile one
/// costs more than to walk a job's other values.
bool matches(const std::string& text, const std::string& pattern) {
  static thread_local std::map<std::string, Pattern> compiled;
  return compiled.try_emplace(pattern, pattern).first->second.is_in(text);
}

/// A whole number beyond those that an integer holds: what it breaks is its bound, not its type.
bool is_beyond_integers(const json& value, const json& node) {
  if (node.at("type").get<std::string>() != "integer" || !value.is_number_float()) return false;
  const double number = value.get<double>();
  return std::abs(number) >= 0x1p63 && node.contains(number > 0 ? "maximum" : "minimum");
}

bool has_string(const json& object, const char* key) {
  return object.contains(key) && object[key].is_string();
}

class Walk {
 public:
  Walk(const Schema& schema, bool is_open, Diagnostics& diagnostics)
      : schema_(schema), is_open_(is_open), diagnostics_(diagnostics) {}

  std::vector<std::string> take_rejected() { return std::move(rejected_); }

  void check(const json& value, const SourceMap* place, const Where& where, const json& unresolved,
             const std::string& path) {
    const json& node = schema_.resolve(unresolved);
    if (node.contains("x-not-supported-yet")) {
      const json& words = node["x-not-supported-yet"];
      const std::string form = words.is_string() ? fmt::format(" {}", words.get<std::string>()) : "";
      error(where, where.key, path, fmt::format("{}{} is not supported yet", subject(path), form));
    } else if (node.contains("oneOf")) {
      check_one_of(value, place, where, node, path);
    } else if (node.contains("const") || node.contains("enum")) {
      check_enum(value, where, node, path);
    } else if (!node.contains("type")) {
      return;  // {}: anything.
    } else if (!has_type(value, node.at("type").get<std::string>()) && !is_beyond_integers(value, node)) {
      must_be(where, path, words_of_type(node["type"].get<std::string>()), value);
    } else if (value.is_number()) {
      check_number(value, where, node, path);
    } else if (value.is_string()) {
      check_string(value.get_ref<const std::string&>(), where, node, path);
    } else if (value.is_array()) {
      check_array(value, place, where, node, path);
    } else if (value.is_object()) {
      check_object(value, place, where, node, path);
    }
  }

 private:
  void error(const Where& where, Position position, const std::string& path, std::string message) {
    rejected_.push_back(path.substr(0, path.find('[')));
    diagnostics_.error(where.source, position.line, position.column, std::move(message));
  }

  void must_be(const Where& where, const std::string& path, const std::string& wanted, const json& got) {
    error(where, where.value, path, fmt::format("{} must be {}, got {}", subject(path), wanted, shown(got)));
  }

  static Where inside(const Where& around, const SourceMap* place) {
    if (place == nullptr) return around;
    Where where{place->source.empty() ? around.source : place->source, place->key, place->value};
    // A value from an override has no position in the file, and its source says which it is.
    if (where.key.line == 0) where.key = where.value;
    return where;
  }

  void check_one_of(const json& value, const SourceMap* place, const Where& where, const json& node,
                    const std::string& path) {
    const json& variants = node["oneOf"];
    if (const json* variant = schema_.variant_for(variants, value)) {
      json before = std::exchange(not_required_, node.value("x-not-required", json::array()));
      check(value, place, where, *variant, path);
      not_required_ = std::move(before);
      return;
    }
    if (!schema_.discriminated(variants)) {
      must_be(where, path, node.at("x-expected").get<std::string>(), value);
      return;
    }
    if (is_open_ && node.value("x-open", false) && value.is_object() && has_string(value, "type")) return;
    std::vector<std::string> types;
    std::vector<std::string> quoted;
    for (const json& variant : variants) {
      types.push_back(schema_.resolve(variant)["properties"]["type"]["const"].get<std::string>());
      quoted.push_back(quote(types.back()));
    }
    if (types.empty()) {
      error(where, where.value, path,
            fmt::format("{}: none is built in, and no plug-in of the job registers one", subject(path)));
    } else if (!value.is_object()) {
      const std::string example = types.front();
      const bool named = value.is_string() &&
                         std::find(types.begin(), types.end(), value.get_ref<const std::string&>()) != types.end();
      must_be(where, path, fmt::format("an object such as {{\"type\": {}}}", named ? shown(value) : quote(example)),
              value);
    } else if (!value.contains("type")) {
      error(where, where.value, path,
            fmt::format("missing key \"type\" in {}: {}", subject(path), alternatives(quoted)));
    } else {
      const SourceMap* type_place = place == nullptr ? nullptr : member(*place, "type");
      unknown_type(value["type"], inside(where, type_place), node, types, joined(path, "type"));
      rejected_.push_back(path.substr(0, path.find('[')));  // Without a type nothing else of it can be read.
    }
  }

  void unknown_type(const json& type, const Where& where, const json& node, const std::vector<std::string>& types,
                    const std::string& path) {
    const std::string name = type.is_string() ? type.get<std::string>() : "";
    const json refused = node.value("x-types-refused", json::object());
    const json aliases = node.value("x-type-aliases", json::object());
    if (refused.contains(name)) {
      error(where, where.value, path,
            fmt::format("{} {} is not supported: {}", subject(path), shown(type), refused[name].get<std::string>()));
    } else if (aliases.contains(name)) {
      error(where, where.value, path,
            fmt::format("{} {} is called {} here", subject(path), shown(type), shown(aliases[name])));
    } else {
      unknown_value(type, where, types, path);
    }
  }

  void check_enum(const json& value, const Where& where, const json& node, const std::string& path) {
    const json allowed = node.contains("const") ? json::array({node["const"]}) : node["enum"];
    if (std::find(allowed.begin(), allowed.end(), value) != allowed.end()) return;
    const json later = node.value("x-values-not-supported-yet", json::array());
    const json refused = node.value("x-values-refused", json::object());
    const std::string name = value.is_string() ? value.get<std::string>() : "";
    if (refused.contains(name)) {
      error(where, where.value, path,
            fmt::format("{} {} is not supported: {}", subject(path), shown(value), refused[name].get<std::string>()));
    } else if (std::find(later.begin(), later.end(), value) != later.end()) {
      error(where, where.value, path, fmt::format("{} {} is not supported yet", subject(path), shown(value)));
    } else {
      unknown_value(value, where, allowed.get<std::vector<std::string>>(), path);
    }
  }

  void unknown_value(const json& value, const Where& where, const std::vector<std::string>& allowed,
                     const std::string& path) {
    std::vector<std::string> quoted;
    for (const std::string& word : allowed) quoted.push_back(quote(word));
    std::string message = fmt::format("{} must be {}, got {}", subject(path), alternatives(quoted), shown(value));
    const auto near = value.is_string() ? nearest(value.get_ref<const std::string&>(), allowed) : std::nullopt;
    if (near) message += fmt::format("; did you mean {}?", quote(*near));
    error(where, where.value, path, message);
  }

  void check_number(const json& value, const Where& where, const json& node, const std::string& path) {
    const double number = value.get<double>();
    const auto bound = [&](const char* key) { return node[key].get<double>(); };
    if (node.contains("minimum") && number < bound("minimum")) {
      if (node.contains("x-below-minimum")) {
        error(where, where.value, path,
              fmt::format("{} {}", subject(path), node["x-below-minimum"].get<std::string>()));
      } else {
        must_be(where, path, "at least " + node["minimum"].dump(), value);
      }
    } else if (node.contains("maximum") && number > bound("maximum")) {
      if (node.contains("x-above-maximum")) {
        error(where, where.value, path,
              fmt::format("{} {}", subject(path), node["x-above-maximum"].get<std::string>()));
      } else {
        must_be(where, path, "at most " + node["maximum"].dump(), value);
      }
    } else if (node.contains("exclusiveMinimum") && number <= bound("exclusiveMinimum")) {
      must_be(where, path, "above " + node["exclusiveMinimum"].dump(), value);
    } else if (node.contains("exclusiveMaximum") && number >= bound("exclusiveMaximum")) {
      must_be(where, path, "below " + node["exclusiveMaximum"].dump(), value);
    }
  }

  void check_string(const std::string& text, const Where& where, const json& node, const std::string& path) {
    if (text.find('\0') != std::string::npos) {
      error(where, where.value, path, fmt::format("{} must not contain a NUL character", subject(path)));
      return;
    }
    if (!is_utf8(text)) {
      error(where, where.value, path, fmt::format("{} must be UTF-8, got {}", subject(path), quote(text)));
      return;
    }
    if (text.size() > node.value("maxLength", text.size())) {
      error(where, where.value, path,
            fmt::format("{} must have at most {} bytes, got {}", subject(path), node["maxLength"].dump(), text.size()));
    } else if (text.size() < node.value("minLength", std::size_t{0})) {
      error(where, where.value, path, fmt::format("{} must not be empty", subject(path)));
    } else if (node.contains("pattern") && !matches(text, node["pattern"].get<std::string>())) {
      must_be(where, path, node.at("x-expected").get<std::string>(), text);
    }
  }

  void check_array(const json& value, const SourceMap* place, const Where& where, const json& node,
                   const std::string& path) {
    const std::size_t least = node.value("minItems", std::size_t{0});
    const std::size_t most = node.value("maxItems", value.size());
    if (value.size() < least || value.size() > most) {
      const std::string wanted = least == most ? fmt::format("exactly {}", least)
                                               : fmt::format("{} {}", value.size() < least ? "at least" : "at most",
                                                             value.size() < least ? least : most);
      error(where, where.value, path,
            fmt::format("{} must have {} items, got {}", subject(path), wanted, value.size()));
      return;
    }
    for (std::size_t i = 0; i < value.size(); ++i) {
      const SourceMap* item = place != nullptr && i < place->items.size() ? &place->items[i] : nullptr;
      check(value[i], item, inside(where, item), node.at("items"), fmt::format("{}[{}]", path, i));
    }
  }

  void check_object(const json& value, const SourceMap* place, const Where& where, const json& node,
                    const std::string& path) {
    if (!node.contains("properties")) return check_map(value, place, where, node, path);
    const json& properties = node["properties"];
    for (const auto& [key, item] : value.items()) {
      const SourceMap* item_place = place == nullptr ? nullptr : member(*place, key);
      const Where item_where = inside(where, item_place);
      if (properties.contains(key)) {
        check(item, item_place, item_where, properties[key], joined(path, key));
      } else {
        unknown_key(key, value, item_where, node, path);
      }
    }
    for (const json& required : node.value("required", json::array())) {
      const std::string key = required.get<std::string>();
      const bool is_needed = std::find(not_required_.begin(), not_required_.end(), key) == not_required_.end();
      if (is_needed && !value.contains(key)) {
        error(where, where.value, joined(path, key), fmt::format("missing key {} in {}", quote(key), subject(path)));
      }
    }
  }

  /// Free keys, values of one kind.
  void check_map(const json& value, const SourceMap* place, const Where& where, const json& node,
                 const std::string& path) {
    const auto values = node.find("additionalProperties");
    if (values == node.end() || !values->is_object()) return;
    if (value.size() > node.value("maxProperties", value.size())) {
      error(where, where.value, path,
            fmt::format("{} must have at most {} members, got {}", subject(path), node["maxProperties"].dump(),
                        value.size()));
      return;
    }
    for (const auto& [key, item] : value.items()) {
      const SourceMap* item_place = place == nullptr ? nullptr : member(*place, key);
      check(item, item_place, inside(where, item_place), *values, joined(path, key));
    }
  }

  void unknown_key(const std::string& key, const json& object, const Where& where, const json& node,
                   const std::string& path) {
    if (!keys_) keys_.emplace(schema_.root());  // Most documents have no such key.
    std::vector<std::string> known;
    for (const auto& property : node["properties"].items()) known.push_back(property.key());
    const bool variant = node["properties"].value("/type/const"_json_pointer, json()).is_string();
    const std::string type = variant ? object["type"].get<std::string>() : "";
    std::string message = fmt::format("unknown key {}", quote(key));
    if (!path.empty()) message += fmt::format(" in {}", quote(path));
    if (variant) message += fmt::format(" of type {}", quote(type));
    error(where, where.key, joined(path, key), message + keys_->advice(key, without_indices(path), type, known));
  }

  static const SourceMap* member(const SourceMap& place, const std::string& key) {
    const auto found = place.members.find(key);
    return found == place.members.end() ? nullptr : &found->second;
  }

  const Schema& schema_;
  bool is_open_;  ///< The document names programs of the user's, which may know more types than the schema.
  Diagnostics& diagnostics_;
  json not_required_ = json::array();  ///< Keys that the variant in work need not have where it stands.
  std::optional<KeyIndex> keys_;       ///< Made for the first unknown key.
  std::vector<std::string> rejected_;  ///< Paths of values with an error.
};

}  // namespace

std::vector<std::string> Schema::check(const Document& document, const std::string& source,
                                       Diagnostics& diagnostics) const {
  const Where where{document.source_map.source.empty() ? source : document.source_map.source, document.source_map.value,
                    document.source_map.value};
  const bool is_open =
      document.value.is_object() && (document.value.contains("plugins") || document.value.contains("worker"));
  Walk walk(*this, is_open, diagnostics);
  walk.check(document.value, &document.source_map, where, root_, "");
  return walk.take_rejected();
}

}  // namespace sgd::json
