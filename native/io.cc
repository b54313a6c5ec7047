// Memory-mapped files as tensors: private pages, so that a write never reaches the file.
#include <ATen/Functions.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "engine.h"

namespace rt {

namespace {

struct Mapping {
  void* base = nullptr;
  int64_t size = 0;
  ~Mapping() {
    if (base) munmap(base, static_cast<size_t>(size));
  }
};

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
