// Loaded into a master by LD_PRELOAD, for tests of disks that fail, and nowhere else: while the file
// HEDDLE_TEST_FAIL_FILE exists, writes to the log and syncs of it fail with EIO; while it exists and
// begins with "slow", each takes 4 s and succeeds.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

static int begins_with_slow(const char *path) {
  char word[4] = {0};
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  ssize_t length = read(fd, word, sizeof word);
  close(fd);
  return length == sizeof word && memcmp(word, "slow", sizeof word) == 0;
}

static int fails(int fd) {
  const char *trigger = getenv("HEDDLE_TEST_FAIL_FILE");
  if (!trigger || access(trigger, F_OK) != 0) return 0;
  char link[64];
  char path[4096];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t length = readlink(link, path, sizeof path - 1);
  if (length < 0) return 0;
  path[length] = 0;
  if (!strstr(path, "/control/wal/")) return 0;
  if (begins_with_slow(trigger)) {
    sleep(4);
    return 0;
  }
  errno = EIO;
  return 1;
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

ssize_t pwrite(int fd, const void *data, size_t size, off_t at) {
  return fails(fd) ? -1 : REAL(pwrite)(fd, data, size, at);
}
ssize_t pwrite64(int fd, const void *data, size_t size, off64_t at) {
  return fails(fd) ? -1 : REAL(pwrite64)(fd, data, size, at);
}
ssize_t pwritev(int fd, const struct iovec *parts, int count, off_t at) {
  return fails(fd) ? -1 : REAL(pwritev)(fd, parts, count, at);
}
ssize_t pwritev64(int fd, const struct iovec *parts, int count, off64_t at) {
  return fails(fd) ? -1 : REAL(pwritev64)(fd, parts, count, at);
}
int fsync(int fd) { return fails(fd) ? -1 : REAL(fsync)(fd); }
int fdatasync(int fd) { return fails(fd) ? -1 : REAL(fdatasync)(fd); }
