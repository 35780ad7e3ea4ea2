import koffi from "koffi";

const PR_SET_PDEATHSIG = 1;
const SIGKILL = 9;

// Becomes the command of its arguments, which the kernel ends with this process's parent.
const [program = "", ...rest] = process.argv.slice(2);
const libc = koffi.load(null);
const prctl = libc.func("int prctl(int, ulong, ulong, ulong, ulong)");
if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) !== 0) process.exit(1);
// The parent may have ended before the call.
if (process.ppid === 1) process.exit(1);
process.execve?.(program, [program, ...rest], process.env);
