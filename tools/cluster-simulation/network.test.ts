import { Dice } from "@heddle/simulation/dice";
import { EventQueue } from "@heddle/simulation/event-queue";
import { expect, test } from "vitest";
import { Network } from "./network.ts";
import { SimulatedProcess } from "./simulated-process.ts";

const SEED = 1;
const MESSAGES = 60;
const GAP_US = 200;
const CUT_US = 5_000;

/** Two machines; the server on "b" listens. */
function twoMachines() {
  const queue = new EventQueue();
  const network = new Network(queue, new Dice(SEED, "connections"));
  const [client, server] = ["a", "b"].map((name) => {
    const clock = { rate: 1, drift: 1, offsetMs: 0, bootedUs: 0 };
    const disk = { maxUs: 0, isFull: false };
    return new SimulatedProcess(name, name, { queue, dice: new Dice(SEED, name), clock, disk });
  }) as [SimulatedProcess, SimulatedProcess];
  network.listen("b:1", { process: server, onConnection: () => undefined });
  return { queue, network, client };
}

test.each([0, 30_000])("cut link, %i us slower: messages stay in order", async (slowUs) => {
  const { queue, network, client } = twoMachines();
  const received: number[] = [];
  network.connect(client, "b:1").then((connection) => {
    network.slowDown("a", "b", slowUs);
    for (let number = 0; number < MESSAGES; number++) {
      queue.after(number * GAP_US, () => connection.send("server", () => received.push(number)));
    }
    queue.after(slowUs + GAP_US, () => {
      network.slowDown("a", "b", 0);
      network.cutOneWay("a", "b", CUT_US);
    });
  }, expect.unreachable);
  await queue.run(() => received.length === MESSAGES);
  expect(received).toEqual(Array.from({ length: MESSAGES }, (_, number) => number));
});

// TCP repeats its request after 1, 3, 7 and 15 s; the link is cut for 5 s. Found by seed 73959.
test("cut link: a request for a connection is repeated until it is mended", async () => {
  const { queue, network, client } = twoMachines();
  network.cut("a", "b", 5_000_000);
  let connectedUs = 0;
  network.connect(client, "b:1").then(() => {
    connectedUs = queue.nowUs;
  }, expect.unreachable);
  await queue.run(() => connectedUs > 0);
  expect(connectedUs).toBeGreaterThan(7_000_000);
  expect(connectedUs).toBeLessThan(7_100_000);
});

test("cut link: a request for a connection is given up after 20 s", async () => {
  const { queue, network, client } = twoMachines();
  network.cut("a", "b", 30_000_000);
  let error: unknown;
  network.connect(client, "b:1").then(
    () => expect.unreachable(),
    (failed: unknown) => {
      error = failed;
    },
  );
  await queue.run(() => error !== undefined);
  expect(String(error)).toContain("ETIMEDOUT");
  expect(queue.nowUs).toBe(20_000_000);
});
