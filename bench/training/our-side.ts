import { type DataSide, timed } from "./data-side.ts";
import { joinBenchJob, openJob, type ParameterProcess } from "./parameter-process.ts";

/**
 * Three ranks of a job at one of our servers. The second's push is timed: its part is taken and added
 * to the first's. The third completes the update, untimed. The second's pull that follows is timed.
 */
export async function ourSide(
  server: ParameterProcess,
  path: "unix" | "tcp" | "grpc",
  bytes: number,
): Promise<DataSide> {
  const job = await openJob({
    parameters: [{ name: "p", shape: [bytes / 4], type: "f32" }],
    servers: [server.address],
    workers: 3,
    learningRate: 1,
    compression: "none",
    optimizer: { kind: "sgd", momentum: 0, nesterov: false },
    consistency: { kind: "bsp" },
  });
  const first = await joinBenchJob(job, 0, [path]);
  const second = await joinBenchJob(job, 1, [path]);
  const third = await joinBenchJob(job, 2, [path]);
  const part = { p: new Float32Array(bytes / 4).fill(0.5) };
  const into = { p: new Float32Array(bytes / 4) };
  const terms = { weight: 1, learningRate: 1e-3 };
  await first.initialize(part);
  return {
    name: `ours, ${path}`,
    pids: [process.pid, server.pid],
    begin: () => first.push(part, terms),
    push: () => timed(() => second.push(part, terms)),
    complete: () => third.push(part, terms),
    pull: () => timed(async () => void (await second.pull(into))),
    close: async () => {
      for (const one of [first, second, third]) await one.close();
    },
  };
}
