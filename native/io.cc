// Memory-mapped files as tensors, with private pages: writes never reach the file. If a mapped file is truncated or its disk fails,
// the process ends with an error that names the file instead of a bare SIGBUS.
#include <ATen/Functions.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>

#include "engine.h"

namespace rt {

namespace {

// List that the signal handler reads: nodes are never freed, only marked as not live.
struct Mapped {
  const char* base;
  size_t size;
  char path[512];
  std::atomic<bool> live{true};
  Mapped* next;
};

std::atomic<Mapped*> mapped{nullptr};

struct Mapping {
  void* base = nullptr;
  int64_t size = 0;
  Mapped* known = nullptr;
  ~Mapping() {
    if (known) known->live = false;
    if (base) munmap(base, static_cast<size_t>(size));
  }
};

void say(const char* text) {
  if (write(STDERR_FILENO, text, std::strlen(text)) < 0) return;
}

// Calls only async-signal-safe functions.
void onBusError(int signal, siginfo_t* info, void*) {
  const char* at = static_cast<const char*>(info->si_addr);
  for (Mapped* m = mapped.load(); m; m = m->next) {
    if (!m->live || at < m->base || at >= m->base + m->size) continue;
    say("\nerror: ");
    say(m->path);
    say(": expected the file that was opened, got one that was cut or cannot be read any more (SIGBUS). Weights must not change "
        "while they are in use: put the file back, or copy it to a local disk, and start the same command again\n");
    _exit(74);
  }
  std::signal(signal, SIG_DFL);  // not a mapped file: the repeated access ends the process as usual
}

Mapped* remember(const std::string& path, void* base, int64_t size) {
  static const bool listening = [] {
    struct sigaction action {};
    action.sa_sigaction = onBusError;
    action.sa_flags = SA_SIGINFO;
    return sigaction(SIGBUS, &action, nullptr) == 0;
  }();
  if (!listening) return nullptr;
  auto* m = new Mapped{static_cast<const char*>(base), static_cast<size_t>(size), {}, {true}, mapped.load()};
  std::strncpy(m->path, path.c_str(), sizeof(m->path) - 1);
  mapped = m;
  return m;
}

std::vector<std::shared_ptr<Mapping>>& maps() {
  static auto* m = new std::vector<std::shared_ptr<Mapping>>();
  return *m;
}

std::shared_ptr<Mapping>& mapAt(int id) {
  TORCH_CHECK(id >= 0 && id < static_cast<int>(maps().size()) && maps()[id], "the mapping is closed");
  return maps()[id];
}

}  // namespace

int mapOpen(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  TORCH_CHECK(fd >= 0, "cannot open ", path, ": ", std::strerror(errno));
  struct stat info {};
  if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
    close(fd);
    TORCH_CHECK(false, path, " is not a regular file");
  }
  auto map = std::make_shared<Mapping>();
  map->size = info.st_size;
  if (map->size > 0) {
    void* base = mmap(nullptr, static_cast<size_t>(map->size), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, fd, 0);
    const int failed = base == MAP_FAILED ? errno : 0;
    close(fd);
    TORCH_CHECK(!failed, "cannot map ", path, ": ", std::strerror(failed));
    map->base = base;
    map->known = remember(path, base, map->size);
  } else {
    close(fd);
  }
  maps().push_back(std::move(map));
  return static_cast<int>(maps().size()) - 1;
}

int64_t mapSize(int map) { return mapAt(map)->size; }

at::Tensor mapTensor(int id, int64_t offset, at::IntArrayRef shape, at::ScalarType dtype) {
  auto map = mapAt(id);
  const auto item = static_cast<int64_t>(c10::elementSize(dtype));
  int64_t bytes = item;
  for (int64_t n : shape) {
    TORCH_CHECK(n >= 0, "negative size in shape ", shape);
    TORCH_CHECK(n == 0 || bytes <= map->size / n || bytes == 0, "shape ", shape, " is larger than the file");
    bytes *= n;
  }
  TORCH_CHECK(offset >= 0 && offset <= map->size - bytes, "the tensor ends at byte ", offset + bytes, ", the file at ", map->size);
  auto options = at::TensorOptions().dtype(dtype);
  char* data = static_cast<char*>(map->base) + offset;
  if (bytes == 0) return at::empty(shape, options);
  if (reinterpret_cast<uintptr_t>(data) % item != 0) {  // unaligned: copy
    at::Tensor t = at::empty(shape, options);
    std::memcpy(t.data_ptr(), data, static_cast<size_t>(bytes));
    return t;
  }
  return at::from_blob(data, shape, [map](void*) {}, options);
}

void mapClose(int map) { mapAt(map).reset(); }

}  // namespace rt
