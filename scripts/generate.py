#!/usr/bin/env python3
"""What is made from the program's own tables: the reference page, man pages and completions of shells.

    scripts/generate.py reference PROGRAM > configs/reference.md    a test compares the page with the tables
    scripts/generate.py share PROGRAM DIR                           DIR/man/man1, DIR/man/man5, completions below DIR

PROGRAM is sgd-launch: verbs and options are what its help says, keys what configs/job.schema.json says, exit codes what
common/exit_codes.hpp says, and events those that the sources write. Python's standard library only.
"""

import json
import os
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
HELP_COLUMN = 34

# Words behind a verb that have no help of their own.
SECOND_WORDS = {"checkpoints": ["get"], "config": ["show"], "nodes": ["drain", "list", "remove", "set-slots", "undrain"],
                "runs": ["list", "pin", "remove", "unpin"], "tune": ["best", "export", "plot", "status"]}

# Verbs behind which a run may be named; "runs" has a word of its own before it.
RUN_VERBS = ("checkpoints", "events", "logs", "metrics", "plot", "resume", "runs", "status", "stop", "validate")
# What stands where a verb does, and has no help of its own.
WORDS_FOR_VERBS = ("help", "version")

# What each line of events.jsonl tells. A test compares the names with those that the sources write.
EVENTS = {
    "after_save": "the command of `checkpoint.after_save` has ended for a checkpoint",
    "asking_again": "only busy nodes are left: those that could not start the run may do so again",
    "backoff": "too few slots are free: the run waits, and tries again",
    "best_changed": "an experiment has a better trial than before",
    "checkpoint_failed": "a checkpoint could not be saved; training goes on",
    "checkpoint_rejected": "a checkpoint is damaged or does not fit, and an older one is used",
    "checkpoint_saved": "a checkpoint is complete",
    "coordinator_restarted": "the coordinator was started again and goes on with the run",
    "epoch_finished": "all workers have finished an epoch",
    "experiment_resumed": "an experiment that had ended goes on",
    "experiment_started": "an experiment began",
    "experiment_unreadable": "a coordinator of another version came back and cannot read what the experiment is: its trials are ended",
    "failure": "a worker failed: the root cause, and whether the workers start again",
    "first_step": "a worker has made its first step of a generation",
    "gpu_excluded": "a GPU was the cause of as many restarts as `recovery.exclude_after` says: the run goes on without it",
    "last_line_refused": "what a command has printed last is no line of metrics (`report.last_line`), and why",
    "metric_missing": "no report has the metric that `checkpoint.keep.best` names",
    "moved": "as many workers as before are on other nodes now, since one was drained or has fewer slots",
    "node_lost": "a node is gone, or cannot be reached",
    "output_dropped": "the log of a worker lacks lines: how many since it was last told, and why (a full disk; the worker has removed the file)",
    "paused": "the workers were ended and the run waits, with its checkpoint",
    "recovered": "all workers step again after a failure: how long each part took",
    "report_mismatch": "workers reported different keys",
    "reports_missing": "a command has succeeded, and some of its ranks have reported more often than others",
    "resized": "the number of workers changed",
    "restarted": "the workers of a command run again after a failure",
    "restored": "a worker has its state: from memory or from disk",
    "run_begun_from": "a new run began with another one's checkpoint",
    "run_finished": "the run has ended, and how",
    "run_resumed": "a run that had ended goes on",
    "run_started": "the run began",
    "search_ended": "the program that draws settings has ended after it had given all trials, and how",
    "search_failed": "the program that draws settings failed",
    "straggler": "a worker holds up the others",
    "trial_cloned": "a trial goes on from another one's checkpoint, or as it was where there was none",
    "trial_decided": "a scheduler stopped, paused or changed a trial, and why",
    "trial_ended": "a trial has ended, and how",
    "trial_paused": "a trial waits, and may go on later",
    "trial_report": "a trial has reported",
    "trial_restarted": "a trial failed and starts again",
    "trial_resumed": "a trial goes on after the experiment was resumed",
    "trial_started": "a trial began: its run and its settings",
    "trial_stopping": "a trial is being stopped, and why",
    "trials_wanted": "a resumed experiment was given another number of trials",
    "worker_exited": "a worker has ended: its exit code or signal",
    "worker_ready": "a worker is ready to train",
    "worker_started": "a worker process was started: rank, node, pid",
}
# Keys of the lines of metrics.jsonl besides a job's own metrics.
METRICS = {
    "phase": "`train` or `validate`, or what a program calls it",
    "epoch": "from 1",
    "batch": "of a report inside an epoch: the number of its batches so far",
    "step": "optimizer steps since the run's start",
    "batch_count": "batches of one worker in this epoch",
    "num_samples": "samples of all workers",
    "train_loss, val_loss": "mean over all samples; with `weight` or `ignore_index` of the loss the mean of the batches' means by their samples",
    "val_accuracy": "share of samples whose largest output is the target; without those of the loss's `ignore_index` the mean of the batches' shares by their samples",
    "last_*": "the value of the last batch, mean over the workers",
    "lr": "learning rate of the last update; `lr_NAME` of several optimizers",
    "samples_per_s": "of all workers",
    "step_ms": "`median` and `p95` of a step, and `own` without waiting for other workers",
    "skipped_updates": "updates that were left out (`training.on_nan` is `skip`)",
    "gpu": "`busy_percent`, `memory_mib` and `celsius` of the workers' GPUs, mean over the workers",
    "profile": "mean times of the last batches (`training.profile`)",
    "workers": "reports of single workers (`report.workers`)",
    "generation": "counts starts of the workers",
    "world_size": "workers that took part",
    "_time_this_iter_s, _training_iteration, _timestamp": "seconds since the last line, its number, Unix time",
}


def read(*path):
    with open(os.path.join(ROOT, *path), encoding="utf-8") as file:
        return file.read()


# ---- tables ----


def help_of(program, *verb):
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("SGD_", "PET_"))}
    environment["COLUMNS"] = "10000"  # Each text in one line.
    return subprocess.run([program, "help", *verb], capture_output=True, text=True, check=True, timeout=60, env=environment).stdout


def verbs_of(program):
    """Name and summary of each, in their order."""
    listed = [tuple(line.split(maxsplit=1)) for line in help_of(program, "verbs").splitlines()]
    return [(verb, summary) for verb, summary in listed if verb not in WORDS_FOR_VERBS]


def parts_of(program, verb):
    """The verbs of two words that one stands for: "token create", or the verb itself."""
    choices = re.search(rf"(?m)^Usage: sgd-launch {verb} \(([a-z |]+)\) \[options\]$", help_of(program, verb))
    return [f"{verb} {part}" for part in choices.group(1).split(" | ")] if choices else [verb]


class Help:
    """A verb's help as data: what it is for, example, usage, free text, and options as (names, value, text)."""

    def __init__(self, text):
        self.summary, self.example, self.usage, self.text, self.options = "", "", [], [], []
        pending = None
        for line in text.splitlines():
            option = re.match(r"  (-{1,2}[A-Za-z].*)$", line)
            if line.startswith("Example: "):
                self.example = line.removeprefix("Example: ")
            elif line.startswith(("Usage: ", "       sgd-launch ")):
                self.usage.append(line.removeprefix("Usage: ").strip())
            elif option:
                left, right = line[:HELP_COLUMN].rstrip(), line[HELP_COLUMN:].strip()
                if len(line) > HELP_COLUMN and line[HELP_COLUMN - 1] != " " or not right:
                    left, right = line.rstrip(), ""
                names, value = self.split(left.strip())
                pending = [names, value, right]
                self.options.append(pending)
            elif pending and not pending[2] and line.startswith(" " * HELP_COLUMN):
                pending[2] = line.strip()
            elif line and not line.startswith(" ") and not self.usage:
                self.summary = line[0].lower() + line[1:].rstrip(".")
            elif line and not line.startswith(" "):
                self.text.append(line)

    @staticmethod
    def split(left):
        """"--num-workers, -n N" is ["--num-workers", "-n"] and "N"."""
        names = []
        for word in left.split(", "):
            name, _, value = word.partition(" ")
            names.append(name)
        return names, value


def run_options(program):
    """Those of run stand in the program's main help, which all options follow."""
    text = help_of(program)
    return Help(text[text.index("Options of run:"):text.index("torchrun's options")]).options


def all_verbs(program):
    """(name, summary, Help) of each verb."""
    found = []
    for verb, summary in verbs_of(program):
        for part in parts_of(program, verb):
            helped = Help(help_of(program, *part.split()))
            if verb == "run":
                helped.example, helped.usage = "sgd-launch -n 2 job.json", ["sgd-launch [run] [options] (job.json | -- command...)"]
                helped.text, helped.options = [], run_options(program)
            found.append((part, helped.summary if " " in part else summary, helped))
    return found


def exit_codes():
    """(code, meaning) of sgd-launch."""
    text = read("common", "exit_codes.hpp")
    body = text[text.index("namespace exit_code"):text.index("}  // namespace exit_code")]
    said = re.findall(r"inline constexpr int k(\w+) = (\d+);(?:\s*///< (.*))?", body)
    return [(int(code), meaning or name.lower()) for name, code, meaning in said if name != "SignalBase"] + [
        (129, "interrupted by SIGHUP"), (130, "interrupted by SIGINT"), (143, "interrupted by SIGTERM")]


def written_events():
    """Names that the sources write to events.jsonl; an agent's journal has others."""
    names = set()
    for folder, _, files in os.walk(os.path.join(ROOT, "launcher")):
        for name in files:
            if name.endswith(".cpp") and name != "journal_codec.cpp":
                names |= set(re.findall(r'\{\s*"event",\s*"(\w+)"\}', read(os.path.relpath(os.path.join(folder, name), ROOT))))
    return names


# ---- job keys ----


class Keys:
    """The schema's keys as rows (path, type, default, meaning), and tables of what a "type" chooses."""

    def __init__(self):
        self.root = json.loads(read("configs", "job.schema.json"))
        self.rows, self.tables = [], []
        for key, node in self.root["properties"].items():
            if key != "$schema":
                self.add(key, node, self.rows)

    def resolved(self, node):
        if "$ref" not in node:
            return node
        return {**self.root["definitions"][node["$ref"].rsplit("/", 1)[1]], **{key: value for key, value in node.items() if key != "$ref"}}

    def variants(self, node):
        """Those that a "type" chooses, by its name."""
        chosen = {}
        for one in map(self.resolved, node.get("oneOf", [])):
            if "oneOf" in one:
                chosen |= self.variants(one)
            kind = one.get("properties", {}).get("type", {}).get("const")
            if kind is not None:
                chosen[kind] = one
        return chosen

    def kind(self, node):
        """A few words for what a value may be."""
        node = self.resolved(node)
        if "x-not-supported-yet" in node and node["x-not-supported-yet"] is True:
            return "not supported yet"
        if "x-expected" in node:
            return node["x-expected"]
        if "enum" in node:
            return ", ".join(f"`{value}`" for value in node["enum"])
        if "const" in node:
            return f"`{json.dumps(node['const'])}`"
        if "oneOf" in node:
            return " or ".join(dict.fromkeys(self.kind(one) for one in node["oneOf"] if not self.variants({"oneOf": [one]}))) or "object with `type`"
        if node.get("type") == "array":
            return "list of " + self.kind(node.get("items", {}))
        words = " or ".join(node["type"]) if isinstance(node.get("type"), list) else node.get("type", "any value")
        if "minimum" in node and "maximum" in node:
            return f"{words}, {node['minimum']} to {node['maximum']}" if node["minimum"] < node["maximum"] else f"{words} {node['minimum']}"
        low = f"≥ {node['minimum']}" if "minimum" in node else f"> {node['exclusiveMinimum']}" if "exclusiveMinimum" in node else ""
        high = f"≤ {node['maximum']}" if "maximum" in node else f"< {node['exclusiveMaximum']}" if "exclusiveMaximum" in node else ""
        return " ".join(word for word in (words, low, high) if word)

    def add(self, path, unresolved, rows):
        node = self.resolved(unresolved)
        default = json.dumps(node["default"]) if "default" in node and node["default"] not in ({}, None) else ""
        rows.append((path, self.kind(node), default, node.get("description", "")))
        inner = self.resolved(node.get("items", {})) if node.get("type") == "array" else node
        here = path + "[]" if inner is not node else path
        for key, child in inner.get("properties", {}).items():
            if key != "type":
                self.add(f"{here}.{key}", child, rows)
        for one in map(self.resolved, inner.get("oneOf", [])):
            if "properties" in one and "const" not in one["properties"].get("type", {}):
                for key, child in one["properties"].items():
                    self.add(f"{here}.{key}", child, rows)
        for kind, variant in self.variants(inner).items():
            table = []
            self.tables.append((here, kind, variant.get("description", ""), table))
            for key, child in variant["properties"].items():
                if key != "type":
                    self.add(key, child, table)


# ---- the reference page ----


def cell(text):
    return str(text).replace("|", "\\|").replace("\n", " ")


def table(head, rows):
    return "\n".join(["| " + " | ".join(head) + " |", "|" + "---|" * len(head), *("| " + " | ".join(map(cell, row)) + " |" for row in rows)])


def key_table(rows):
    return table(("key", "value", "default", "meaning"),
                 [(f"`{path}`", kind, f"`{default}`" if default else "", meaning) for path, kind, default, meaning in rows])


def option_table(options):
    return table(("option", "meaning"), [("`" + ", ".join(names) + (" " + value if value else "") + "`", text) for names, value, text in options])


def reference(program):
    keys = Keys()
    said = ["# Reference", "", "Made by `scripts/generate.py reference` from the tables of the program; a test compares.", "",
            "[Job keys](#job-keys) · [Types](#types) · [Verbs](#verbs) · [Events](#events) · [Metrics](#metrics) · [Exit codes](#exit-codes)",
            "", "## Job keys", "", "A path with dots is what `--set` takes: `--set training.epochs=5`.", "", key_table(keys.rows), "", "## Types",
            "", "What the `type` of an object chooses, with the keys that this type has.", ""]
    for path, kind, meaning, rows in keys.tables:
        said += [f"### `{path}`: `{kind}`", "", meaning, ""] + ([key_table(rows), ""] if rows else [])
    said += ["## Verbs", ""]
    for name, summary, helped in all_verbs(program):
        said += [f"### {name}", "", summary[0].upper() + summary[1:] + ".", "", "```", *helped.usage, "```", ""]
        if helped.options:
            said += [option_table(helped.options), ""]
    said += ["## Events", "", "Lines of `events.jsonl`, by their `event`; all have `time`, and most a `generation`.", "",
             table(("event", "meaning"), [(f"`{name}`", text) for name, text in EVENTS.items()]), "", "## Metrics", "",
             "Keys of the lines of `metrics.jsonl`, besides `training.metrics` and what an operator or program reports.", "",
             table(("key", "meaning"), [("`" + name.replace(", ", "`, `") + "`", text) for name, text in METRICS.items()]), "", "## Exit codes", "",
             table(("code", "meaning"), exit_codes()), ""]
    return "\n".join(said)


# ---- man pages ----


def roff(text):
    text = text.replace("\\", "\\e").replace("-", "\\-").replace("`", "")
    return re.sub(r"^([.'])", r"\\&\1", text, flags=re.M)


def man_page(name, section, summary, body):
    return "\n".join([f'.TH {name.upper().replace(" ", "-")} {section} "" "sgd-launch" "sgd-launch"', ".SH NAME",
                      f"{name.replace(' ', '-')} \\- {roff(summary)}", *body, ""])


def man_options(options):
    body = []
    for names, value, text in options:
        body += [".TP", ".B " + roff(", ".join(names) + (" " + value if value else "")), roff(text)]
    return body


def man_verb(name, summary, helped):
    body = [".SH SYNOPSIS"]
    for usage in helped.usage:
        body += [".nf", roff(usage), ".fi"]
    if helped.text:
        body += [".SH DESCRIPTION", *map(roff, helped.text)]
    if helped.options:
        body += [".SH OPTIONS", *man_options(helped.options)]
    if helped.example:
        body += [".SH EXAMPLE", ".nf", roff(helped.example), ".fi"]
    return man_page("sgd-launch " + name, 1, summary, [*body, ".SH SEE ALSO", ".BR sgd\\-launch (1),", ".BR sgd\\-launch\\-job (5)"])


def man_main(verbs):
    body = [".SH SYNOPSIS", ".nf", roff("sgd-launch [run] [options] (job.json | -- command...)"), roff("sgd-launch VERB [options]"), ".fi", ".SH VERBS"]
    for name, summary, _ in verbs:
        body += [".TP", ".B " + roff(name), roff(summary)]
    body += [".SH EXIT STATUS"]
    for code, meaning in exit_codes():
        body += [".TP", f".B {code}", roff(meaning)]
    body += [".SH FILES", ".TP", ".I runs/NAME\\-TIME\\-ID", "a run: job.json, events.jsonl, metrics.jsonl, summary.json, logs, checkpoints", ".TP",
             ".I ~/.config/sgd\\-launch/config.json", roff('the cluster that runs go to: {"address": "HOST:PORT"}'), ".SH SEE ALSO",
             ".BR sgd\\-launch\\-job (5), the page of each verb: sgd\\-launch\\-VERB (1)"]
    return man_page("sgd-launch", 1, "distributed training that survives failures", body)


def man_job():
    keys = Keys()
    body = [".SH DESCRIPTION", roff("A job file is JSON with comments. A path with dots is what --set takes."), ".SH KEYS"]
    for path, kind, default, meaning in keys.rows:
        body += [".TP", ".B " + roff(path), roff(f"{meaning} ({kind}{'; default ' + default if default else ''})")]
    for path, kind, meaning, rows in keys.tables:
        body += [f".SS {roff(path)}: {roff(kind)}", roff(meaning)]
        for key, value, default, text in rows:
            body += [".TP", ".B " + roff(key), roff(f"{text} ({value}{'; default ' + default if default else ''})")]
    return man_page("sgd-launch-job", 5, "job files of sgd-launch", body)


# ---- completions ----


def words_by_verb(verbs):
    words = {}
    for name, _, helped in verbs:
        first, *rest = name.split()
        words.setdefault(first, SECOND_WORDS.get(first, []).copy()).extend(
            [*rest, *(option for names, _, _ in helped.options for option in names if option.startswith("--"))])
    words["help"] = [*words, "verbs"]
    return {verb: sorted(set(all_words)) for verb, all_words in words.items()}


def bash_completion(verbs):
    words = words_by_verb(verbs)
    cases = "\n".join(f"    {verb}) words='{' '.join(all_words)}' ;;" for verb, all_words in words.items())
    return f"""# Completion of sgd-launch for bash, made by scripts/generate.py.
_sgd_launch() {{
  local current=${{COMP_WORDS[COMP_CWORD]}} verb=run words word at
  for ((at = 1; at < COMP_CWORD; at++)); do
    word=${{COMP_WORDS[at]}}
    [ "$word" != -- ] || return 0
    case " {' '.join(words)} " in *" $word "*) verb=$word; break ;; esac
  done
  case $verb in
{cases}
  esac
  case $verb in
    help) mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current"); return 0 ;;
    runs) [ "$COMP_CWORD" -gt $((at + 1)) ] || verb= ;;
  esac
  case $verb in {'|'.join(RUN_VERBS)})
    words="$words latest"
    for word in runs/*/; do
      word=${{word%/}}
      [ ! -d "$word" ] || [ "$word" = runs/latest ] || words="$words ${{word#runs/}}"
    done ;;
  esac
  if [ "$COMP_CWORD" -eq 1 ]; then words="{' '.join(words)} version $words"; fi
  mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current"; compgen -f -- "$current")
}}
complete -o filenames -F _sgd_launch sgd-launch
"""


def zsh_completion(verbs):
    cases = "\n".join(f"    {verb}) compadd -- {' '.join(all_words)} ;;" for verb, all_words in words_by_verb(verbs).items())
    return f"""#compdef sgd-launch
# Completion of sgd-launch for zsh, made by scripts/generate.py.
local verb=run word
for word in ${{words[2,CURRENT-1]}}; do
  case $word in ({'|'.join(words_by_verb(verbs))}) verb=$word; break ;; esac
done
if (( CURRENT == 2 )); then compadd -- {' '.join(words_by_verb(verbs))} version; fi
case $verb in
{cases}
esac
case $verb in
  help) return ;;
  {'|'.join(RUN_VERBS)}) compadd -- latest runs/*(N/:t) ;;
esac
_files
"""


def fish_completion(verbs):
    lines = ["# Completion of sgd-launch for fish, made by scripts/generate.py."]
    seen = set()
    quoted = lambda text: "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
    for name, summary, helped in verbs:
        verb = name.split()[0]
        if verb not in seen:
            lines.append(f"complete -c sgd-launch -n __fish_use_subcommand -a {verb} -d {quoted(summary)}")
            if verb in SECOND_WORDS:
                lines.append(f"complete -c sgd-launch -n '__fish_seen_subcommand_from {verb}' -a {quoted(' '.join(SECOND_WORDS[verb]))}")
        seen.add(verb)
        for names, value, text in helped.options:
            long = next((option[2:] for option in names if option.startswith("--")), None)
            if long:
                lines.append(f"complete -c sgd-launch -n '__fish_seen_subcommand_from {verb}' -l {long} {'-r ' if value else ''}-d {quoted(text)}")
    runs = quoted("latest (command ls runs 2>/dev/null)")
    lines += [f"complete -c sgd-launch -n '__fish_seen_subcommand_from {' '.join(RUN_VERBS)}' -a {runs} -d run",
              f"complete -c sgd-launch -f -n '__fish_seen_subcommand_from help' -a {quoted(' '.join(words_by_verb(verbs)['help']))}"]
    return "\n".join(lines) + "\n"


def share(program, folder):
    verbs = all_verbs(program)
    files = {"man/man1/sgd-launch.1": man_main(verbs), "man/man5/sgd-launch-job.5": man_job(),
             "bash-completion/completions/sgd-launch": bash_completion(verbs), "zsh/vendor-completions/_sgd-launch": zsh_completion(verbs),
             "fish/vendor_completions.d/sgd-launch.fish": fish_completion(verbs)}
    for name, summary, helped in verbs:
        files[f"man/man1/sgd-launch-{name.replace(' ', '-')}.1"] = man_verb(name, summary, helped)
    for name, text in files.items():
        path = os.path.join(folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)


def main(arguments):
    if len(arguments) == 2 and arguments[0] == "reference":
        print(reference(arguments[1]), end="")
    elif len(arguments) == 3 and arguments[0] == "share":
        share(arguments[1], arguments[2])
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
