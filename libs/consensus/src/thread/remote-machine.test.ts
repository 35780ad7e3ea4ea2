// holds: bound-plan-parts

import { AppError } from "@heddle/base/errors";
import { beforeEach, expect, test } from "vitest";
import type { Command, StateMachine } from "../ports.ts";
import { MachineTasks } from "./machine-tasks.ts";
import { RemoteMachine } from "./remote-machine.ts";
import { fromPlain, packCommands, type ToThread } from "./thread-protocol.ts";

/** Keeps texts; `broken` makes it refuse all, `held` keeps it from continuing. */
class TextMachine implements StateMachine<number> {
  texts: string[] = [];
  broken = false;
  held: Promise<void> = Promise.resolve();

  async apply(commands: readonly Command[]): Promise<number[]> {
    await this.held;
    if (this.broken) throw new AppError("server_error", "the machine is broken");
    return commands.map(({ data }) => this.texts.push(Buffer.from(data).toString()));
  }

  snapshot(): Iterable<Uint8Array> {
    return [...this.texts].map((text) => Buffer.from(text));
  }

  async restore(chunks: AsyncIterable<Uint8Array>): Promise<void> {
    const texts: string[] = [];
    for await (const chunk of chunks) texts.push(Buffer.from(chunk).toString());
    this.texts = texts;
  }
}

let machine: TextMachine;
let remote: RemoteMachine;
let tasks: MachineTasks<number>;
let failures: string[];
let replies: (readonly [proposal: number | undefined, reply: number])[];

/** Both halves with nothing but a turn of the event loop between. */
beforeEach(() => {
  machine = new TextMachine();
  failures = [];
  replies = [];
  tasks = new MachineTasks(
    machine,
    (commands, applied) => {
      replies.push(...commands.map(({ proposal }, at) => [proposal, applied[at] ?? 0] as const));
    },
    (answer) => setImmediate(() => receive(answer)),
  );
  remote = new RemoteMachine((id, task) => setImmediate(() => tasks.take(id, task)));
});

function receive(answer: ToThread): void {
  if (answer.kind === "applied") remote.applied(answer.bytes);
  if (answer.kind === "done") remote.answered(answer.id, answer.chunk);
  if (answer.kind === "failed" && remote.failed(answer.id, fromPlain(answer.error))) {
    failures.push(answer.error.message);
  }
}

const command = (index: number, text: string, proposal?: number): Command => ({
  index,
  data: new Uint8Array(Buffer.from(text)),
  proposal,
});

async function all(chunks: AsyncIterable<Uint8Array>): Promise<string[]> {
  const texts: string[] = [];
  for await (const chunk of chunks) texts.push(Buffer.from(chunk).toString());
  return texts;
}

async function* pieces(...texts: string[]): AsyncGenerator<Uint8Array, void> {
  for (const text of texts) yield Buffer.from(text);
}

test("machine: a snapshot holds exactly the commands applied before it", async () => {
  await remote.apply([command(1, "one", 7), command(2, "two")]);
  await remote.apply([command(3, "three")]);
  const snapshot = remote.snapshot();
  await remote.apply([command(4, "four", 8)]);
  expect(await all(snapshot)).toEqual(["one", "two", "three"]);
  expect(machine.texts).toEqual(["one", "two", "three", "four"]);
  expect(replies).toEqual([
    [7, 1],
    [undefined, 2],
    [undefined, 3],
    [8, 4],
  ]);
});

test("remote machine: a whole snapshot replaces the state, a truncated one does not", async () => {
  await remote.apply([command(1, "old")]);
  await remote.restore(pieces("a", "b"));
  expect(machine.texts).toEqual(["a", "b"]);
  const broken = (async function* () {
    yield Buffer.from("c");
    throw new Error("a piece is damaged");
  })();
  await expect(remote.restore(broken)).rejects.toThrow("a piece is damaged");
  expect(machine.texts).toEqual(["a", "b"]);
});

test("remote machine: commands for the main thread are bounded by its window", async () => {
  const { promise, resolve } = Promise.withResolvers<void>();
  machine.held = promise;
  const large = "x".repeat(1024 * 1024);
  let handedOver = 0;
  const applying = (async () => {
    for (let index = 1; index <= 6; index++) {
      await remote.apply([command(index, large, index)]);
      handedOver++;
    }
  })();
  for (let turn = 0; turn < 100; turn++) await new Promise((next) => setImmediate(next));
  expect(handedOver).toBeLessThan(3);
  resolve();
  await applying;
  await all(remote.snapshot());
  expect(machine.texts).toHaveLength(6);
});

test("remote machine: slow commands yield to the event loop between them", async () => {
  const apply = machine.apply.bind(machine);
  machine.apply = (commands) => {
    const untilMs = performance.now() + 15;
    while (performance.now() < untilMs);
    return apply(commands);
  };
  const seen: number[] = [];
  const poll = () => {
    seen.push(machine.texts.length);
    if (machine.texts.length < 4) setImmediate(poll);
  };
  setImmediate(poll);
  for (let id = 1; id <= 4; id++) {
    tasks.take(id, { kind: "apply", commands: packCommands([command(id, "x")]) });
  }
  await new Promise<void>((resolve) => tasks.afterwards(resolve));
  expect(seen).toEqual(expect.arrayContaining([1, 2, 3]));
});

test("machine: a command that cannot be applied fails the state", async () => {
  machine.broken = true;
  await remote.apply([command(1, "one", 1)]);
  while (failures.length === 0) await new Promise((next) => setImmediate(next));
  expect(failures).toEqual(["the machine is broken"]);
  await expect(remote.apply([command(2, "two", 2)])).rejects.toThrow("the machine is broken");
});
