// Custom CUDA kernels: compiled by NVRTC, loaded and launched through the driver API. Both libraries are opened at run time, so the build
// does not need their headers. The kernels themselves are in src/kernels.
#include <dlfcn.h>

#include <map>

#include "engine.h"

namespace rt {

namespace {

template <class F>
F symbol(void* library, const char* name) {
  void* found = dlsym(library, name);
  TORCH_CHECK(found, "the library has no function ", name);
  return reinterpret_cast<F>(found);
}

// Same layout as in cuda.h: CUlaunchAttribute, CUlaunchConfig.
struct Attribute {
  unsigned id;
  char pad[4];
  union {
    unsigned numbers[3];
    unsigned char bytes[64];
  } value;
};
struct Configuration {
  unsigned grid[3], block[3], shared;
  void* stream;
  Attribute* attributes;
  unsigned count;
};
constexpr unsigned kCluster = 4, kOverlap = 6;  // CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, _PROGRAMMATIC_STREAM_SERIALIZATION
constexpr int kMaxShared = 8;                   // CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES

struct Driver {
  int (*errorText)(int, const char**);
  int (*load)(void**, const void*);
  int (*function)(void**, void*, const char*);
  int (*attribute)(void*, int, int);
  int (*launch)(const Configuration*, void*, void**, void**);
};

void* driverLibrary() {
  static void* const library = [] {
    void* opened = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    TORCH_CHECK(opened, "libcuda.so.1 cannot be loaded: ", dlerror());
    return opened;
  }();
  return library;
}

const Driver& driver() {
  static const Driver found = [] {
    void* library = driverLibrary();
    Driver d;
    d.errorText = symbol<decltype(d.errorText)>(library, "cuGetErrorString");
    d.load = symbol<decltype(d.load)>(library, "cuModuleLoadData");
    d.function = symbol<decltype(d.function)>(library, "cuModuleGetFunction");
    d.attribute = symbol<decltype(d.attribute)>(library, "cuFuncSetAttribute");
    d.launch = symbol<decltype(d.launch)>(library, "cuLaunchKernelEx");
    return d;
  }();
  return found;
}

void check(int code, const std::string& what) {
  if (code == 0) return;
  const char* text = nullptr;
  driver().errorText(code, &text);
  TORCH_CHECK(false, what, ": CUDA driver error ", code, text ? std::string(", ") + text : std::string());
}

struct Function {
  void* entry;
  std::string name;
};
// How the tensor copy engine finds tiles of so many rows and 64 columns of a matrix in bfloat16: CUtensorMap.
struct alignas(64) TileMap {
  char bytes[128];
};
TileMap tilesOf(const at::Tensor& t, int rows) {
  using Encode = int (*)(TileMap*, int, unsigned, void*, const uint64_t*, const uint64_t*, const unsigned*, const unsigned*, int, int, int, int);
  static const auto encode = symbol<Encode>(driverLibrary(), "cuTensorMapEncodeTiled");
  constexpr int kBfloat16 = 9, kSwizzle128 = 3, kReadAhead256 = 3;
  const uint64_t sizes[] = {static_cast<uint64_t>(t.size(1)), static_cast<uint64_t>(t.size(0))}, step = 2 * sizes[0];
  const unsigned box[] = {64, static_cast<unsigned>(rows)}, each[] = {1, 1};
  TileMap map;
  check(encode(&map, kBfloat16, 2, t.data_ptr(), sizes, &step, box, each, 0, kSwizzle128, kReadAhead256, 0), "tiles of a matrix");
  return map;
}
std::vector<void*>& modules() {
  static auto* all = new std::vector<void*>();
  return *all;
}
std::vector<Function>& functions() {
  static auto* all = new std::vector<Function>();
  return *all;
}

void* compiler(const std::string& path) {
  static auto* opened = new std::map<std::string, void*>();
  void*& library = (*opened)[path];
  if (!library) library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  TORCH_CHECK(library, path, " cannot be loaded: ", dlerror());
  return library;
}

}  // namespace

std::string nvrtcVersion(const std::string& path) {
  int major = 0, minor = 0;
  symbol<int (*)(int*, int*)>(compiler(path), "nvrtcVersion")(&major, &minor);
  return std::to_string(major) + "." + std::to_string(minor);
}

std::string nvrtcCompile(const std::string& path, const std::string& source, const std::vector<std::string>& options) {
  void* library = compiler(path);
  void* program = nullptr;
  TORCH_CHECK(symbol<int (*)(void**, const char*, const char*, int, const char**, const char**)>(library, "nvrtcCreateProgram")(
                  &program, source.c_str(), "kernels.cu", 0, nullptr, nullptr) == 0,
              "NVRTC cannot take the source");
  std::vector<const char*> words;
  for (const auto& option : options) words.push_back(option.c_str());
  const int code = symbol<int (*)(void*, int, const char**)>(library, "nvrtcCompileProgram")(program, static_cast<int>(words.size()), words.data());
  const auto read = [&](const char* size, const char* get) {
    size_t n = 0;
    symbol<int (*)(void*, size_t*)>(library, size)(program, &n);
    std::string out(n, '\0');
    if (n) symbol<int (*)(void*, char*)>(library, get)(program, out.data());
    return out;
  };
  const std::string log = code ? read("nvrtcGetProgramLogSize", "nvrtcGetProgramLog") : "";
  std::string image = code ? "" : read("nvrtcGetCUBINSize", "nvrtcGetCUBIN");
  if (!code && image.empty()) image = read("nvrtcGetPTXSize", "nvrtcGetPTX");  // compute_NN: the driver translates it
  symbol<int (*)(void**)>(library, "nvrtcDestroyProgram")(&program);
  TORCH_CHECK(code == 0, "NVRTC error ", code, ":\n", log.substr(0, 4000));
  return image;
}

int kernelModule(const void* image) {
  void* module = nullptr;
  cudaSynchronize(cudaCurrent());  // creates the context of the device
  check(driver().load(&module, image), "loading a module of kernels");
  modules().push_back(module);
  return static_cast<int>(modules().size()) - 1;
}

int kernelFunction(int module, const std::string& name, int shared) {
  TORCH_CHECK(module >= 0 && module < static_cast<int>(modules().size()), "unknown module of kernels");
  void* entry = nullptr;
  check(driver().function(&entry, modules()[module], name.c_str()), "kernel " + name);
  if (shared > 48 * 1024) check(driver().attribute(entry, kMaxShared, shared), "shared memory of kernel " + name);
  functions().push_back({entry, name});
  return static_cast<int>(functions().size()) - 1;
}

void kernelLaunch(const double* d) {
  const auto id = static_cast<size_t>(d[0]);
  TORCH_CHECK(id < functions().size(), "unknown kernel");
  const Function& f = functions()[id];
  Attribute attributes[2] = {};
  Configuration c = {};
  for (int i = 0; i < 3; i++) c.grid[i] = static_cast<unsigned>(d[1 + i]);
  c.block[0] = static_cast<unsigned>(d[4]);
  c.block[1] = c.block[2] = 1;
  c.shared = static_cast<unsigned>(d[5]);
  c.attributes = attributes;
  if (d[6] > 1) {
    Attribute& a = attributes[c.count++];
    a.id = kCluster;
    a.value.numbers[0] = static_cast<unsigned>(d[6]);
    a.value.numbers[1] = a.value.numbers[2] = 1;
  }
  if (d[7] != 0) {
    Attribute& a = attributes[c.count++];
    a.id = kOverlap;
    a.value.numbers[0] = 1;
  }
  union Value {
    void* pointer;
    int integer;
    float number;
  };
  const auto n = static_cast<size_t>(d[8]);
  std::vector<Value> values(n);
  std::vector<void*> pointers(n);
  std::vector<TileMap> maps;
  int device = -1;
  for (size_t i = 0; i < n; i++) {
    const double kind = d[9 + 2 * i], value = d[10 + 2 * i];
    pointers[i] = &values[i];
    if (kind == 1) {
      values[i].integer = static_cast<int>(value);
    } else if (kind == 2) {
      values[i].number = static_cast<float>(value);
    } else if (kind == 3) {
      values[i].pointer = nullptr;
    } else {
      const at::Tensor& t = engine().table.get(value);
      TORCH_CHECK(t.is_cuda() && t.is_contiguous(), "kernel ", f.name, ", argument ", i, ": expected a contiguous CUDA tensor, got ", t.sizes());
      TORCH_CHECK(device < 0 || t.device().index() == device, "kernel ", f.name, ": tensors of two devices");
      device = t.device().index();
      values[i].pointer = t.data_ptr();
      if (kind == 0) continue;  // else tiles of kind - 16 rows
      TORCH_CHECK(t.dim() == 2 && t.scalar_type() == at::kBFloat16, "kernel ", f.name, ", argument ", i, ": expected a matrix in bfloat16");
      maps.reserve(n);  // so that none moves
      maps.push_back(tilesOf(t, static_cast<int>(kind) - 16));
      pointers[i] = &maps.back();
    }
  }
  c.stream = cudaStream(device < 0 ? cudaCurrent() : device);
  check(driver().launch(&c, f.entry, pointers.data(), nullptr), "launch of kernel " + f.name);
}

}  // namespace rt
