import { arch } from "node:os";
import { checked } from "./libc.ts";
import { koffi } from "./load-koffi.ts";

// A filter of system calls, for what Landlock does not refuse. A task with the worker's user could
// set limits and priorities of the worker's and the masters' processes, which can end them.

/**
 * Numbers from seccomp(2) and linux/audit.h, by architecture: its own, and those of the system
 * calls.
 */
const ARCHITECTURES: Readonly<Record<string, SystemCalls>> = {
  x64: {
    audit: 0xc000003e,
    prlimit64: 302,
    setpriority: 141,
    ioprioSet: 251,
    // sched_setparam, sched_setscheduler and sched_setattr.
    setScheduling: [142, 144, 314],
  },
  arm64: {
    audit: 0xc00000b7,
    prlimit64: 261,
    setpriority: 140,
    ioprioSet: 30,
    setScheduling: [118, 119, 274],
  },
};

interface SystemCalls {
  readonly audit: number;
  readonly prlimit64: number;
  readonly setpriority: number;
  readonly ioprioSet: number;
  readonly setScheduling: readonly number[];
}

const PR_SET_SECCOMP = 22;
const SECCOMP_MODE_FILTER = 2;
const ALLOW = 0x7fff0000;
const EPERM = 1;
const REFUSE = 0x00050000 | EPERM;

/** Instructions of the filter's machine (linux/bpf_common.h). */
const LOAD_WORD = 0x20;
const JUMP_IF_EQUAL = 0x15;
const JUMP_IF_AT_LEAST = 0x35;
const RETURN = 0x06;

/** Places in struct seccomp_data. */
const NUMBER = 0;
const AUDIT = 4;
const argument = (index: number) => 16 + 8 * index;

/** On x64 numbers from here on are those of the x32 interface. */
const X32_BIT = 0x40000000;
/** PRIO_PROCESS, and IOPRIO_WHO_PROCESS. */
const PRIORITY_OF_PROCESS = 0;
const IO_PRIORITY_OF_PROCESS = 1;

type Instruction = readonly [code: number, ifTrue: number, ifFalse: number, value: number];

const prctlCall = koffi
  .load(null)
  .func("prctl", "int", ["int", "ulong", "void *", "ulong", "ulong"]);

/**
 * Keeps this thread, and what it becomes, from setting limits and priorities of others: such calls,
 * and all of another architecture, get EPERM. Throws where the kernel has no filters, or on an
 * architecture that is not known here.
 */
export function refuseLimitsOfOthers(): void {
  const calls = ARCHITECTURES[arch()];
  if (!calls) throw new Error(`system calls of ${arch()} are not known here`);
  const filter = encode(program(calls));
  const header = Buffer.alloc(16);
  header.writeUInt16LE(filter.length / 8, 0);
  header.writeBigUInt64LE(koffi.address(filter), 8);
  const done = prctlCall(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, header, 0, 0);
  checked("prctl(PR_SET_SECCOMP)", done);
}

function program(calls: SystemCalls): Instruction[] {
  const { audit, prlimit64, setpriority, ioprioSet, setScheduling } = calls;
  return [
    [LOAD_WORD, 0, 0, AUDIT],
    [JUMP_IF_EQUAL, 1, 0, audit],
    [RETURN, 0, 0, REFUSE],
    [LOAD_WORD, 0, 0, NUMBER],
    [JUMP_IF_AT_LEAST, 0, 1, X32_BIT],
    [RETURN, 0, 0, REFUSE],
    ...ofItself(prlimit64, [[0, 0]]),
    ...setScheduling.flatMap((call) => ofItself(call, [[0, 0]])),
    ...ofItself(setpriority, [
      [0, PRIORITY_OF_PROCESS],
      [1, 0],
    ]),
    ...ofItself(ioprioSet, [
      [0, IO_PRIORITY_OF_PROCESS],
      [1, 0],
    ]),
    [RETURN, 0, 0, ALLOW],
  ];
}

/** Refuses the call unless its arguments, as the kernel's ints, have these values. */
function ofItself(
  call: number,
  wanted: readonly (readonly [index: number, value: number])[],
): Instruction[] {
  const checks = wanted.flatMap(([index, value], i): Instruction[] => [
    [LOAD_WORD, 0, 0, argument(index)],
    // To the refusal behind the checks, or on.
    [JUMP_IF_EQUAL, 0, 2 * (wanted.length - i - 1) + 1, value],
  ]);
  const answers: Instruction[] = [
    [RETURN, 0, 0, ALLOW],
    [RETURN, 0, 0, REFUSE],
  ];
  return [[JUMP_IF_EQUAL, 0, checks.length + answers.length, call], ...checks, ...answers];
}

/** An array of struct sock_filter. */
function encode(instructions: readonly Instruction[]): Buffer {
  const bytes = Buffer.alloc(instructions.length * 8);
  for (const [i, [code, ifTrue, ifFalse, value]] of instructions.entries()) {
    bytes.writeUInt16LE(code, 8 * i);
    bytes.writeUInt8(ifTrue, 8 * i + 2);
    bytes.writeUInt8(ifFalse, 8 * i + 3);
    bytes.writeUInt32LE(value, 8 * i + 4);
  }
  return bytes;
}
