// What ThreadSanitizer is told, inside the program: daemons and keepers begin with environments that tests and agents
// have emptied, so a variable would not reach them. Each process that has races writes a file of its own, and goes on.

extern "C" {

const char* __tsan_default_options();
const char* __tsan_default_suppressions();

const char* __tsan_default_options() {
  return "log_path=" SGD_RACES ":exitcode=0:halt_on_error=0:second_deadlock_stack=1:history_size=4";
}

// Boost.Asio is compiled with the sanitizer, as all of ours is, and OpenSSL and glibc are not: none has needed a word.
const char* __tsan_default_suppressions() {
  return "";
}
}
