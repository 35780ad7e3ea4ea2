import { readdirSync } from "node:fs";
import { koffi } from "./load-koffi.ts";

/** Numbers of system calls that are the same on every architecture. */
const SYS_CLOSE_RANGE = 436;
const SYS_MOUNT_SETATTR = 442;
const CLOSE_RANGE_CLOEXEC = 4;
const F_SETFD = 2;
const FD_CLOEXEC = 1;
/** SIGPIPE and SIGXFSZ, which Node ignores. A program would inherit that. */
const ignoredByNode = [13, 25];
const PR_SET_NO_NEW_PRIVS = 38;
const PR_CAPBSET_DROP = 24;
const PR_CAP_AMBIENT = 47;
const PR_SET_CHILD_SUBREAPER = 36;
const PR_CAP_AMBIENT_CLEAR_ALL = 4;
const LAST_CAPABILITY = 63;
const AT_FDCWD = -100;
const AT_RECURSIVE = 0x8000;
const MOUNT_ATTR_RDONLY = 1n;
const LOCK_EX = 2;
const LOCK_NB = 4;
const EWOULDBLOCK = 11;

export const CLONE_NEWNS = 0x20000;
export const MS_RDONLY = 1;
export const MS_NOSUID = 2;
export const MS_NODEV = 4;
export const MS_NOEXEC = 8;
export const MS_REMOUNT = 32;
export const MS_BIND = 4096;
export const MS_REC = 16384;
export const MS_SLAVE = 1 << 19;

const libc = koffi.load(null);
const prctlCall = libc.func("int prctl(int, ulong, ulong, ulong, ulong)");
const unshareCall = libc.func("int unshare(int)");
const mountCall = libc.func(
  "int mount(const char *, const char *, const char *, ulong, const char *)",
);
const execveCall = libc.func("int execve(const char *, const char **, const char **)");
const fcntlCall = libc.func("int fcntl(int, int, int)");
const flockCall = libc.func("int flock(int, int)");
const signalCall = libc.func("void *signal(int, intptr_t)");
const mountSetattrCall = libc.func("syscall", "long", [
  "long",
  "int",
  "const char *",
  "uint",
  "void *",
  "size_t",
]);
const closeRangeCall = libc.func("syscall", "long", ["long", "uint", "uint", "int"]);

/** Throws with the name of the call and the error number where the result is negative. */
export function checked(call: string, result: number | bigint): number {
  if (Number(result) >= 0) return Number(result);
  throw new Error(`${call} failed with error number ${koffi.errno()}`);
}

export function unshare(flags: number): void {
  checked("unshare", unshareCall(flags));
}

export function mount(
  source: string,
  target: string,
  type: string | null,
  flags: number,
  data: string | null,
): void {
  checked(`mount of ${target}`, mountCall(source, target, type, flags, data));
}

/** Makes the mount, and those below it where wanted, read-only or writable. False where it may not. */
export function setReadOnly(path: string, isReadOnly: boolean, isRecursive: boolean): boolean {
  const [set, clear] = isReadOnly ? [MOUNT_ATTR_RDONLY, 0n] : [0n, MOUNT_ATTR_RDONLY];
  const attributes = Buffer.from(new BigUint64Array([set, clear, 0n, 0n]).buffer);
  const flags = isRecursive ? AT_RECURSIVE : 0;
  const call = [AT_FDCWD, path, flags, attributes, attributes.length] as const;
  return Number(mountSetattrCall(SYS_MOUNT_SETATTR, ...call)) === 0;
}

/** Locks the open file until it is closed or this process ends; false where another one has. */
export function tryLock(descriptor: number): boolean {
  if (flockCall(descriptor, LOCK_EX | LOCK_NB) === 0) return true;
  if (koffi.errno() === EWOULDBLOCK) return false;
  throw new Error(`flock failed with error number ${koffi.errno()}`);
}

/** No program that this process becomes gets more rights than it has, as by a set-user-ID bit. */
export function forbidNewPrivileges(): void {
  checked("prctl(PR_SET_NO_NEW_PRIVS)", prctlCall(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
}

/** The next program has no capability, also where it runs as root. */
export function dropCapabilities(): void {
  prctlCall(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
  for (let each = 0; each <= LAST_CAPABILITY; each++) prctlCall(PR_CAPBSET_DROP, each, 0, 0, 0);
}

/** From now on this process, and what it becomes, is the parent of descendants whose parents end. */
export function adoptOrphans(): void {
  checked("prctl(PR_SET_CHILD_SUBREAPER)", prctlCall(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0));
}

/** Becomes the program, with its first `descriptors` alone. Throws where it cannot. */
export function execute(
  program: string,
  command: readonly string[],
  environment: Readonly<Record<string, string>>,
  descriptors = 3,
): never {
  for (const signal of ignoredByNode) signalCall(signal, 0);
  if (Number(closeRangeCall(SYS_CLOSE_RANGE, descriptors, 0xffffffff, CLOSE_RANGE_CLOEXEC)) < 0) {
    // Linux before 5.11.
    for (const name of readdirSync("/proc/self/fd")) fcntlCall(Number(name), F_SETFD, FD_CLOEXEC);
  }
  // Node marks all that it was started with.
  for (let each = 0; each < descriptors; each++) fcntlCall(each, F_SETFD, 0);
  const variables = Object.entries(environment).map(([name, value]) => `${name}=${value}`);
  checked("execve", execveCall(program, [...command, null], [...variables, null]));
  throw new Error("execve returned");
}
