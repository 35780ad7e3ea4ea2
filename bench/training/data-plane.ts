import { once } from "node:events";
import { join } from "node:path";
import { Client, credentials } from "@grpc/grpc-js";
import { Child } from "../support/child-process.ts";
import { benchFolder, repositoryRoot } from "../support/command-line.ts";
import { median } from "../support/statistics.ts";
import { peerMethods } from "./grpc-peer-methods.ts";
import { joinJob, openJob, startParameterServer } from "./parameter-process.ts";

/** One way of moving parameters, in GB/s (10^9 bytes), each the median of its rounds. */
export interface DataPlaneFigure {
  readonly name: string;
  readonly megabytes: number;
  /** The peer does not add. */
  readonly push: number;
  readonly pull: number;
}

interface Side {
  push(): Promise<void>;
  /** What must happen before a pull, untimed. */
  complete(): Promise<void>;
  pull(): Promise<void>;
  close(): Promise<void>;
}

/** Ours by unix socket, TCP and gRPC, and plain grpc-js, in interleaved rounds. */
export async function measureDataPlane(rounds: number): Promise<DataPlaneFigure[]> {
  const server = await startParameterServer();
  const figures: DataPlaneFigure[] = [];
  for (const megabytes of [4, 64]) {
    const bytes = megabytes * 2 ** 20;
    const sides: Record<string, Side> = {};
    for (const path of ["unix", "tcp", "grpc"] as const) {
      sides[`ours, ${path}`] = await ourSide(server, path, bytes);
    }
    sides["grpc-js"] = await grpcSide(bytes);
    figures.push(...(await measure(sides, megabytes, rounds)));
    for (const side of Object.values(sides)) await side.close();
  }
  return figures;
}

async function measure(
  sides: Readonly<Record<string, Side>>,
  megabytes: number,
  rounds: number,
): Promise<DataPlaneFigure[]> {
  const times = new Map(Object.keys(sides).map((name) => [name, { push: [0], pull: [0] }]));
  for (let round = 0; round <= rounds; round++) {
    for (const [name, side] of Object.entries(sides)) {
      const push = await timed(() => side.push());
      await side.complete();
      const pull = await timed(() => side.pull());
      // The first round warms up.
      const own = times.get(name);
      if (round === 0 && own) Object.assign(own, { push: [], pull: [] });
      else {
        own?.push.push(push);
        own?.pull.push(pull);
      }
    }
  }
  const rate = (ms: readonly number[]) => (megabytes * 2 ** 20) / 1e6 / median(ms);
  return [...times].map(([name, { push, pull }]) => ({
    ...{ name, megabytes, push: rate(push), pull: rate(pull) },
  }));
}

/**
 * Two ranks, of which the first is timed: its part is taken and added. The second completes the
 * update, untimed. The pull that follows is timed.
 */
async function ourSide(
  server: string,
  path: "unix" | "tcp" | "grpc",
  bytes: number,
): Promise<Side> {
  const job = await openJob({
    parameters: [{ name: "p", shape: [bytes / 4], type: "f32" }],
    ...{ servers: [server], workers: 2, learningRate: 1, compression: "none" },
    optimizer: { kind: "sgd", momentum: 0, nesterov: false },
    consistency: { kind: "bsp" },
  });
  const [first, second] = [await joinJob(job, 0, [path]), await joinJob(job, 1, [path])];
  const part = { p: new Float32Array(bytes / 4).fill(0.5) };
  const into = { p: new Float32Array(bytes / 4) };
  const terms = { weight: 1, learningRate: 1e-3 };
  await first.initialize(part);
  return {
    push: () => first.push(part, terms),
    complete: () => second.push(part, terms),
    pull: async () => void (await first.pull(into)),
    close: async () => {
      await first.close();
      await second.close();
    },
  };
}

async function grpcSide(bytes: number): Promise<Side> {
  const child = new Child({
    name: "grpc-js",
    command: process.execPath,
    args: [join(repositoryRoot, "bench/training/grpc-peer.ts"), String(bytes)],
    logFile: join(benchFolder, "grpc-peer.log"),
  });
  const address = (await child.line(/ready (.+)/, 20_000))[1] ?? "";
  const options = { "grpc.max_receive_message_length": -1 };
  const client = new Client(address, credentials.createInsecure(), options);
  const part = Buffer.alloc(bytes, 3);
  const into = Buffer.alloc(bytes);
  const { push, pull } = peerMethods;
  return {
    complete: () => Promise.resolve(),
    push: async () => {
      const { promise, resolve, reject } = Promise.withResolvers<void>();
      const call = client.makeClientStreamRequest(
        push.path,
        push.requestSerialize,
        push.responseDeserialize,
        (error) => (error ? reject(error) : resolve()),
      );
      const step = 1024 * 1024;
      for (let offset = 0; offset < bytes; offset += step) {
        const data = part.subarray(offset, offset + step);
        if (!call.write({ offset, data })) await once(call, "drain");
      }
      call.end();
      await promise;
    },
    pull: async () => {
      const call = client.makeServerStreamRequest(
        pull.path,
        pull.requestSerialize,
        pull.responseDeserialize,
        {},
      );
      for await (const { data, offset } of call) into.set(data, offset);
    },
    close: async () => {
      client.close();
      await child.stop();
    },
  };
}

async function timed(work: () => Promise<void>): Promise<number> {
  const begin = performance.now();
  await work();
  return performance.now() - begin;
}
