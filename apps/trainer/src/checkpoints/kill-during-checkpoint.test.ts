// holds: train-checkpoint-kill

import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { type ServerProcess } from "@heddle/parameters/testing/server-processes";
import { afterAll, beforeAll, expect, test } from "vitest";
import { TrainingCluster } from "../../test/training-cluster.ts";

// Trainers that kill themselves during a push and during a checkpoint, by a plugin's algorithm in
// their process; a real parameter server with two shards.

const ROUNDS = 12;

/**
 * Each round takes 1 off every parameter, so after r rounds all are -r, which each pull checks.
 * `deaths` give, attempt by attempt, the round and the operation during which to die.
 */
const PLUGIN = `
import { appendFileSync, readFileSync } from "node:fs";
const ELEMENTS = 2 ** 21;
const attempts = new URL("attempts", import.meta.url);
const die = () => process.kill(process.pid, "SIGKILL");
export default {
  name: "counter", version: "1.0.0", apiVersion: 1,
  setup({ algorithms }) {
    algorithms.add("counter", {
      config: { type: "object", properties: { deaths: { type: "array", default: [] } } },
      plan: ({ deaths }) => ({
        parameters: [{ name: "count", shape: [ELEMENTS], init: { kind: "zeros" } }],
        servers: { optimizer: { kind: "sgd", momentum: 0, nesterov: false }, learningRate: 1 },
        rounds: ${ROUNDS}, stepAfter: (round) => round, pushesPerRound: 1,
        artifacts: ({ count }) => ({ count: Buffer.from(String(count[0])) }),
        run: async ({ client, parameters, done, report }) => {
          appendFileSync(attempts, done + "\\n");
          const death = deaths[readFileSync(attempts, "utf8").split("\\n").length - 2];
          const { count } = parameters;
          const check = (round) => {
            const wrong = count.find((value) => value !== -round);
            if (wrong !== undefined) throw new Error("round " + round + " has " + wrong);
          };
          await client.pull(parameters);
          check(done);
          for (let round = done + 1; round <= ${ROUNDS}; round++) {
            const isLast = death?.round === round;
            if (isLast && death.act === "push") setTimeout(die, death.afterMs);
            await client.push({ count: new Float32Array(ELEMENTS).fill(1) }, { weight: 1, learningRate: 1 });
            await client.pull(parameters);
            // Where the push had ended before its time, it dies with the round unreported.
            if (isLast && death.act === "push") await new Promise(() => undefined);
            check(round);
            if (isLast) {
              const requested = new Promise((resolve) => process.once("SIGUSR1", resolve));
              process.kill(process.pid, "SIGUSR1");
              await requested;
              if (death.act === "checkpoint") setTimeout(die, death.afterMs);
            }
            await report({ round, step: round, loss: 0, metrics: {}, state: {} });
            if (isLast && death.act === "checkpointed") die();
            if (isLast) await new Promise(() => undefined);
          }
        },
      }),
    });
  },
};
`;

let cluster: TrainingCluster;
let server: ServerProcess;

beforeAll(async () => {
  cluster = new TrainingCluster();
  server = await cluster.startServer("s0");
});
afterAll(() => cluster.close());

/** The newest checkpoint that a trainer received, as a leader chooses it; "" before the first. */
const latest = (names: readonly (string | undefined)[]) => names.findLast((name) => name) ?? "";

test("kill -9 during pushes and checkpoints: each update is applied once in the end", async () => {
  const plugin = join(cluster.folder, "counter.mjs");
  writeFileSync(plugin, PLUGIN);
  const deaths = [
    { round: 3, act: "checkpointed" },
    { round: 5, act: "push", afterMs: 4 },
    { round: 6, act: "checkpoint", afterMs: 4 },
  ];
  const orders = { plugins: [{ from: plugin }], keepCheckpoints: 3 };
  const job = cluster.job("counter", { parameter_servers: 2, deaths }, [server, server], orders);
  const names: (string | undefined)[] = [];
  let resumeFrom = "";
  for (const [i] of deaths.entries()) {
    const trainer = job.start({ attempt: i + 1, resumeFrom });
    expect(await trainer.ended(), trainer.output).toBe("SIGKILL");
    names.push(...trainer.progress().map(({ checkpoint }) => checkpoint));
    resumeFrom = latest(names);
  }
  // The first one was complete; whether the last one was depends on timing.
  expect(resumeFrom).toMatch(/^a\d-r0000(03|06)-s2$/);
  const last = job.start({ attempt: deaths.length + 1, resumeFrom });
  await last.succeeded();
  expect(last.output).toContain(`resumed from checkpoint ${resumeFrom}`);
  expect(readFileSync(last.artifact("count"), "utf8")).toBe(String(-ROUNDS));
  const begun = readFileSync(join(cluster.folder, "attempts"), "utf8").trim().split("\n");
  console.info(`rounds that attempts began after: ${begun.join(", ")}`);
  expect(begun.slice(0, 3)).toEqual(["0", "3", "3"]);
  expect(begun).toHaveLength(deaths.length + 1);
});
