import { submitJobRequest } from "@heddle/contracts/api/job-spec";
import type { ControlCommand } from "@heddle/control/command";
import type { ReplicatedControl } from "@heddle/control/replicated-control";
import { ControlMachine } from "../../apps/master/src/control-plane/raft/control-machine.ts";

/**
 * The size of the control state, and how long its snapshot blocked the main thread, milliseconds.
 */
export interface StallFigures {
  readonly records: number;
  readonly bytes: number;
  readonly beginMs: number;
  readonly longestPieceMs: number;
  readonly p99PieceMs: number;
  /** The longest piece's CPU time: on a loaded machine the rest of its time belongs to others. */
  readonly longestPieceCpuMs: number;
}

const jobs = 100_000;
const nodes = 5_000;
const keys = 5_000;

/**
 * Takes a snapshot of a large state as the main thread does: the call, and then each piece of 64
 * KiB in its own turn. A job changes between the pieces, as in a busy cluster.
 */
export async function measureSnapshotStall(): Promise<StallFigures> {
  const machine = new ControlMachine();
  const { control } = machine;
  fill(control);
  let records = 0;
  for (const map of Object.values(control.state)) records += map.size;
  const beganMs = performance.now();
  const pieces = machine.snapshot()[Symbol.iterator]();
  const beginMs = performance.now() - beganMs;
  const times: number[] = [];
  let longestPieceCpuMs = 0;
  let bytes = 0;
  for (;;) {
    const startMs = performance.now();
    const startCpu = process.threadCpuUsage();
    const { done, value } = pieces.next();
    times.push(performance.now() - startMs);
    const { user, system } = process.threadCpuUsage(startCpu);
    longestPieceCpuMs = Math.max(longestPieceCpuMs, (user + system) / 1_000);
    if (done) break;
    bytes += value.byteLength;
    make(control, { type: "job.request", jobId: jobId(times.length), request: "cancel" });
    await new Promise((resolve) => setImmediate(resolve));
  }
  times.sort((a, b) => a - b);
  const at = (share: number) => times[Math.floor(share * (times.length - 1))] as number;
  const [longestPieceMs, p99PieceMs] = [at(1), at(0.99)];
  return { records, bytes, beginMs, longestPieceMs, p99PieceMs, longestPieceCpuMs };
}

function fill(control: ReplicatedControl): void {
  for (let n = 0; n < nodes; n++) make(control, { type: "node.join", offer: offerOf(`node-${n}`) });
  for (let n = 0; n < keys; n++) {
    const id = String(n).padStart(8, "k");
    const key = { id, name: "n", hash: "0".repeat(64), scopes: ["*"], models: [], limits: {} };
    make(control, { type: "key.create", key: { ...key, createdAtMs: 0 } });
  }
  for (let n = 0; n < jobs; n++) {
    const spec = submitJobRequest.parse({
      name: `n${n}`,
      command: "true",
      resources: { gpu_count: 1 },
    });
    make(control, { type: "job.submit", jobId: jobId(n), spec });
  }
}

function make(control: ReplicatedControl, change: Record<string, unknown>): void {
  const command = { atMs: control.index, ...change } as unknown as ControlCommand;
  const reply = control.apply({ type: "control", command }, control.index + 1);
  if (!reply.ok) throw new Error(`${change["type"]} was refused: ${reply.message}`);
}

function jobId(n: number): string {
  return `job_${String(n).padStart(26, "0")}`;
}

function offerOf(id: string) {
  return {
    id,
    name: id,
    address: `${id}:1`,
    incarnation: "1",
    cpuMilli: 64_000,
    memoryMib: 65_536,
    localSsdGb: 1_000,
    ioOperationsPerSec: 0,
    networkMbps: 0,
    gpuType: "H100",
    gpuMemoryGb: 80,
    gpuCount: 8,
    simulated: true,
    labels: {},
    taints: [],
    rack: "",
    fabric: "",
    executors: ["process"],
    algorithms: [],
  };
}
