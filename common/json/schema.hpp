#pragma once
// A documented subset of JSON Schema draft-07, walked so that every error of a document is found
// with its place and said in a user's words.
//   read:   $ref (to definitions), type, properties, required, additionalProperties (false, or beside no properties
//           the schema of all values), maxProperties, enum, const,
//           minimum, maximum, exclusiveMinimum, exclusiveMaximum, minLength, maxLength, pattern,
//           items, minItems, maxItems, default, oneOf; {} takes anything
//   oneOf:  variants that all have a const "type" are selected by the value's "type", so that errors
//           name the keys of the chosen one; others by the JSON type and required keys; a variant may be a oneOf.
//           An enum with a type beside it is meant by all values of that type, so that a misspelt one gets its own
//           error
//   ours:   x-expected (words in place of a pattern or oneOf), x-path (resolved against a folder),
//           x-not-supported-yet (true, or words such as "as an object"), x-values-not-supported-yet,
//           x-values-refused (beside enum: value -> what instead),
//           x-any-string (beside enum, in a oneOf: every string means this variant, so that a misspelt one is told what
//           there is), x-below-minimum, x-above-maximum, x-aliases (at the root: key of other tools -> our path),
//           beside oneOf: x-type-aliases (type of other tools -> ours), x-types-refused (type -> why, and what
//           instead), x-open (in a document that names plug-ins, a type that is none of them passes as it is),
//           x-not-required (keys that a variant requires, and need not have here)
// The schema itself is trusted: it is part of the program, or json/extension.hpp has looked at it.

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "common/json/diagnostics.hpp"
#include "common/json/nlohmann.hpp"
#include "common/json/reader.hpp"

namespace sgd::json {

class Schema {
 public:
  explicit Schema(nlohmann::json root);

  /// Appends all errors of the document; `source` names it. Returns the paths of the values they are about.
  [[nodiscard]] std::vector<std::string> check(const Document& document, const std::string& source,
                                               Diagnostics& diagnostics) const;

  /// Fills in defaults and passes every x-path value through `absolute`. Of what check() rejected nothing may
  /// be left in `value`.
  void complete(nlohmann::json& value, const std::function<std::string(const std::string&)>& absolute) const;

  /// The nodes that describe the dotted `path`, several where the variant is open. `value` selects variants.
  [[nodiscard]] std::vector<const nlohmann::json*> nodes_at(std::string_view path, const nlohmann::json& value) const;
  /// True when the value at `path` can only be a string.
  [[nodiscard]] bool wants_string(std::string_view path, const nlohmann::json& value) const;
  /// Default of the value at `path`, or null.
  [[nodiscard]] nlohmann::json default_at(std::string_view path, const nlohmann::json& value) const;

  /// What a node's $ref stands for, else the node.
  [[nodiscard]] const nlohmann::json& resolve(const nlohmann::json& node) const;
  /// True when all variants of a oneOf have a const "type".
  [[nodiscard]] bool discriminated(const nlohmann::json& one_of) const;
  /// The variant of a oneOf that `value` means, or null.
  [[nodiscard]] const nlohmann::json* variant_for(const nlohmann::json& one_of, const nlohmann::json& value) const;
  [[nodiscard]] const nlohmann::json& root() const { return root_; }

 private:
  /// Appends what `value`, where it is known, is described by: a node that is no oneOf, or all that are possible.
  void open(const nlohmann::json& unresolved, const nlohmann::json* value,
            std::vector<const nlohmann::json*>& out) const;
  void complete_node(nlohmann::json& value, const nlohmann::json& node,
                     const std::function<std::string(const std::string&)>& absolute) const;

  nlohmann::json root_;
};

/// `a.b` from `a` and `b`; `b` from the root.
[[nodiscard]] std::string joined(const std::string& path, const std::string& key);
/// The segments of a dotted path.
[[nodiscard]] std::vector<std::string> split_path(std::string_view path);
/// True when `value` has the JSON type that a schema's "type" names.
[[nodiscard]] bool has_type(const nlohmann::json& value, const std::string& type);

}  // namespace sgd::json
