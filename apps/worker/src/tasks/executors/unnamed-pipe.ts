import { fchmodSync } from "node:fs";
import koffi from "koffi";

const O_CLOEXEC = 0o2000000;
const ALL_MAY_OPEN = 0o666;

const pipe2 = koffi.load(null).func("int pipe2(void *, int)");

/** Descriptors that children get only where they are given them. */
export interface PipeEnds {
  readonly read: number;
  readonly write: number;
}

/** A blocking pipe. A task of another user may open it too, by the names of its own descriptors. */
export function openPipe(): PipeEnds {
  const ends = new Int32Array(2);
  if (pipe2(ends, O_CLOEXEC) !== 0) {
    throw new Error(`pipe2 failed with error number ${koffi.errno()}`);
  }
  const [read = -1, write = -1] = ends;
  fchmodSync(write, ALL_MAY_OPEN);
  return { read, write };
}
