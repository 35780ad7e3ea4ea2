/*
 * What the disk can do: appends of SIZE bytes, each made durable before the next, into a file that
 * was written in full before. Usage: wal-ceiling FILE FILE-BYTES SIZE SECONDS fdatasync|odsync
 * Prints appends per second, and the p50 and p99 of one in microseconds.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec + t.tv_nsec / 1e9;
}

static int ascending(const void *a, const void *b) {
  double difference = *(const double *)a - *(const double *)b;
  return (difference > 0) - (difference < 0);
}

int main(int count, char **words) {
  if (count != 6) return 2;
  size_t file_bytes = strtoull(words[2], 0, 10), size = strtoull(words[3], 0, 10);
  double seconds = atof(words[4]);
  int synced = strcmp(words[5], "odsync") == 0;
  size_t most = 1 << 20, done = 0;
  char *zeros = calloc(1, 1 << 20), *record = malloc(size);
  double *times = malloc(most * sizeof *times);
  memset(record, 7, size);
  int file = open(words[1], O_RDWR | O_CREAT | O_TRUNC, 0600);
  for (size_t at = 0; at < file_bytes; at += 1 << 20)
    if (pwrite(file, zeros, 1 << 20, at) < 0) return 1;
  if (fsync(file) != 0) return 1;
  close(file);
  file = open(words[1], O_RDWR | (synced ? O_DSYNC : 0));
  double start = now(), last = start;
  for (size_t at = 0; done < most && last - start < seconds; at += size) {
    if (at + size > file_bytes) at = 0;
    if (pwrite(file, record, size, at) != (ssize_t)size) return 1;
    if (!synced && fdatasync(file) != 0) return 1;
    double ended = now();
    times[done++] = ended - last;
    last = ended;
  }
  qsort(times, done, sizeof *times, ascending);
  printf("%.0f %.1f %.1f\n", done / (last - start), times[done / 2] * 1e6, times[done * 99 / 100] * 1e6);
  return 0;
}
