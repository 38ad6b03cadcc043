// sgd-worker: the worker with what is built in; see worker/program/.

#include "worker/program/program.hpp"

int main(int argc, char** argv) {
  sgd::worker::run_program(argc, argv);
}
