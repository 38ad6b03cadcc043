#pragma once
// All verbs by name, and how a line of words is read: which verb it names, where it stands, what a misspelt one meant.

#include <map>
#include <string>
#include <vector>

namespace sgd::cli {

struct Verb {
  int (*run)(const std::vector<std::string>& arguments);
  const char* summary;  ///< What it is for, as a line of a list.
};

[[nodiscard]] const std::map<std::string, Verb>& verbs();

/// What a verb, or one of two words ("token create"), is for; empty: it is none.
[[nodiscard]] std::string summary_of(const std::string& verb);

/// "--address H:P nodes list" is "nodes --address H:P list": options that many verbs have may stand before the verb.
/// Words without a verb there stay as they are.
[[nodiscard]] std::vector<std::string> verb_first(std::vector<std::string> words);

/// What is said of a first word that is no verb, no job file and no script. `next` is the one behind it, or empty.
/// Reads PATH: a program is told how it is run.
[[nodiscard]] std::string unknown_word(const std::string& word, const std::string& next = "");

/// `help VERB...`: the verb's own; of no verb, that of run; `help verbs`: a line a verb. `words` are those behind
/// "help".
[[nodiscard]] int help_verb(std::vector<std::string> words);

}  // namespace sgd::cli
