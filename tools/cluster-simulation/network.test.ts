import { Dice } from "@heddle/simulation/dice";
import { EventQueue } from "@heddle/simulation/event-queue";
import { expect, test } from "vitest";
import { Network } from "./network.ts";
import { SimulatedProcess } from "./simulated-process.ts";

const SEED = 1;
const MESSAGES = 60;
const GAP_US = 200;
const CUT_US = 5_000;

test.each([0, 30_000])("cut link, %i us slower: messages stay in order", async (slowUs) => {
  const queue = new EventQueue();
  const network = new Network(queue, new Dice(SEED, "connections"));
  const [client, server] = ["a", "b"].map((name) => {
    const clock = { rate: 1, drift: 1, offsetMs: 0, bootedUs: 0 };
    const disk = { maxUs: 0, isFull: false };
    return new SimulatedProcess(name, name, { queue, dice: new Dice(SEED, name), clock, disk });
  }) as [SimulatedProcess, SimulatedProcess];
  const received: number[] = [];
  network.listen("b:1", { process: server, onConnection: () => undefined });
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
