// The engine of the addon: table of tensors with scopes, ops by name, caching allocator. Knows neither Node-API nor models.
#pragma once
#include <ATen/Tensor.h>
#include <ATen/core/Generator.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

namespace rt {

// Table of tensors. A handle is slot + 2^32 * generation: exact in a double, and the handle of a freed tensor is detected.
class Table {
 public:
  double put(at::Tensor t);
  at::Tensor& get(double handle);  // throws StaleHandle
  void free(double handle);        // no error if it is already freed
  void keep(double handle);        // removes it from its scope: only free() frees it
  void begin();
  void end(const double* kept, size_t n);  // frees the innermost scope; the kept tensors move to its parent
  void clear();
  bool alive(double handle) const;
  size_t live() const { return live_; }
  size_t depth() const { return scopes_.size(); }
  size_t capacity() const { return slots_.size(); }
  uint64_t created() const { return created_; }
  std::vector<double> handles() const;

 private:
  struct Slot {
    at::Tensor tensor;
    uint32_t generation = 1;
    int32_t scope = -1;  // -1: none
    bool used = false;
  };
  struct Entry {
    uint32_t slot, generation;
  };
  Slot* find(double handle);
  void release(uint32_t index);
  std::vector<Slot> slots_;
  std::deque<uint32_t> free_;  // oldest first, see put
  std::vector<std::vector<Entry>> scopes_;
  size_t live_ = 0;
  uint64_t created_ = 0;
};

struct StaleHandle : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct Arg {
  std::string name;
  char kind;          // see kindOf in boxed.cc; lower case = optional; '?' = not supported
  int fixed;          // n of int[n], 0 if the length is not fixed
  bool hasDefault, kwargOnly;
};

struct Op {
  c10::OperatorHandle handle;
  std::string name, schema;
  std::vector<Arg> args;
  std::vector<c10::IValue> defaults;
  std::vector<char> returns;  // 'T', 'X' (Tensor[]), 'S' (number), '_' (an argument changed in place), '?'
  std::vector<std::string> returnNames;
  explicit Op(c10::OperatorHandle h) : handle(std::move(h)) {}
};

struct Engine {
  double* buffer = nullptr;
  size_t capacity = 0;
  Table table;
  std::vector<std::unique_ptr<Op>> ops;
  std::vector<std::string> strings;
  std::vector<at::Generator> generators;
};

Engine& engine();

int resolveOp(const std::string& name, const std::string& overload);  // -1: no such op
void execOp();                                                         // command in buffer, results back in buffer
std::string describeCall();                                            // arguments of the failed op, for the error text
std::vector<std::string> allSchemas();

// graph.cc
std::vector<bool> reachedLeaves(const std::vector<at::Tensor>& roots, const std::vector<at::Tensor>& leaves);
bool shareOperations(const std::vector<at::Tensor>& some, const std::vector<at::Tensor>& others);  // leaves do not count
void refuseGradients(const at::Tensor& leaf, const std::string& why);  // a later backward that reaches it fails

// io.cc
int mapOpen(const std::string& path);
int64_t mapSize(int map);
at::Tensor mapTensor(int map, int64_t offset, at::IntArrayRef shape, at::ScalarType dtype);
void mapClose(int map);

// alloc.cc
void installAllocator();
struct AllocStats {
  int64_t live, peak, cached;
};
AllocStats allocStats();
void resetPeak();
void emptyHostCache();

// groups.cc
void collectivesShutdown();

// device.cc
int cudaCount();
void cudaLoad();  // sets the environment that cuBLAS reads
void cudaUse(int device);  // the current device from now on
int cudaCurrent();
void cudaSynchronize(int device);
void cudaUseSideStream(bool on, int device);  // the stream of all graph captures
void cudaFork(int device);  // where a second stream begins
void cudaBeside(bool on, int device);  // the second stream is the current one; off: the first one, which waits for it
void cudaFixedOrder(bool on);  // deterministic algorithms; ops without one throw
void cudaMemory(int device, double* out);  // allocated, reserved, peak allocated, total
void cudaResetPeak(int device);
void cudaEmptyCache();
int cudaEvent(int device);  // records now
double cudaElapsed(int from, int to);
void cudaEventFree(int event);
int cudaGraphBegin(int device);
void cudaGraphEnd(int graph, int device);
void cudaGraphReplay(int graph);
void cudaGraphFree(int graph);
void cudaShutdown();
at::Generator cudaGenerator(int device);
std::string cudaName(int device);
void cudaFacts(int device, double* out);  // compute capability (90 for 9.0), multiprocessors
void* cudaStream(int device);             // the current one

// products.cc
void installProducts();  // before the first product
void products(double* command);  // results overwrite the command

// launch.cc: custom kernels
std::string nvrtcVersion(const std::string& path);  // path of libnvrtc
std::string nvrtcCompile(const std::string& path, const std::string& source, const std::vector<std::string>& options);  // machine code
int kernelModule(const void* image);
int kernelFunction(int module, const std::string& name, int shared);  // shared: maximum bytes of a launch
void kernelLaunch(const double* command);

// Type and index + 1 of a device, as the buffer has them.
inline c10::Device deviceOf(double word) {
  const auto code = static_cast<int>(word);
  return c10::Device(static_cast<c10::DeviceType>(code >> 8), static_cast<c10::DeviceIndex>((code & 255) - 1));
}

}  // namespace rt
