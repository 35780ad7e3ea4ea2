import { type DataSide, timed } from "./data-side.ts";
import { joinJob, openJob, type ParameterProcess } from "./parameter-process.ts";

/**
 * Two ranks of a job at one of our servers, of which the first is timed: its part is taken and added.
 * The second completes the update, untimed. The pull that follows is timed.
 */
export async function ourSide(
  server: ParameterProcess,
  path: "unix" | "tcp" | "grpc",
  bytes: number,
): Promise<DataSide> {
  const job = await openJob({
    parameters: [{ name: "p", shape: [bytes / 4], type: "f32" }],
    ...{ servers: [server.address], workers: 2, learningRate: 1, compression: "none" },
    optimizer: { kind: "sgd", momentum: 0, nesterov: false },
    consistency: { kind: "bsp" },
  });
  const [first, second] = [await joinJob(job, 0, [path]), await joinJob(job, 1, [path])];
  const part = { p: new Float32Array(bytes / 4).fill(0.5) };
  const into = { p: new Float32Array(bytes / 4) };
  const terms = { weight: 1, learningRate: 1e-3 };
  await first.initialize(part);
  return {
    name: `ours, ${path}`,
    pids: [process.pid, server.pid],
    push: () => timed(() => first.push(part, terms)),
    complete: () => second.push(part, terms),
    pull: () => timed(async () => void (await first.pull(into))),
    close: async () => {
      await first.close();
      await second.close();
    },
  };
}
