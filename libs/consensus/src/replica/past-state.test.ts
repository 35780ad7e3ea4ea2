import { AppError } from "@heddle/base/errors";
import { createMessage } from "@heddle/raft/core/message";
import type { Entry } from "@heddle/raft/log/entry";
import { expect, test } from "vitest";
import { encodeProposal } from "../proposals/entry-codec.ts";
import { MemoryFiles } from "../testing/memory-files.ts";
import { TextMachine } from "../testing/replica-group.ts";
import { DurableLog } from "./durable-log.ts";
import { firstMembership } from "./membership.ts";
import { readPastState } from "./past-state.ts";

const MEMBERSHIP = firstMembership([{ id: 1, name: "m1", address: "m1:1", nonce: "n" }]);
const ID = { node: 1, incarnation: 1, sequence: 1 };

function storageOf(files: MemoryFiles) {
  return {
    files,
    directory: "data",
    owner: { cluster: "c", node: "1" },
    segmentBytes: 4_096,
    restore: () => Promise.resolve(),
    onDamaged: (error: Error) => {
      throw error;
    },
  };
}

/** A member that runs, with a snapshot at entry 10 of the text `before`. */
async function member() {
  const files = new MemoryFiles();
  const log = await DurableLog.open(storageOf(files));
  await log.bootstrap(MEMBERSHIP, [Buffer.from("before\n")], { index: 10, term: 1 });
  const append = (...entries: Entry[]) =>
    log.write(
      createMessage({ type: "MsgStorageAppend", to: 1, term: 2, vote: 1, commit: 10, entries }),
    );
  const compact = (index: number, text: string) =>
    log.compact({ index, term: 2 }, MEMBERSHIP, [Buffer.from(`${text}\n`)]);
  return { files, append, compact };
}

const command = (index: number): Entry => {
  const data = encodeProposal(ID, Buffer.from(`e${index}`));
  return { term: 2, index, type: "EntryNormal", data };
};
const commands = (from: number, to: number) =>
  Array.from({ length: to - from + 1 }, (_, i) => command(from + i));

/** The texts of the state after an entry, and the machines that were made. */
async function textsAt(files: MemoryFiles, at: number, make = () => new TextMachine()) {
  const made: TextMachine[] = [];
  const state = readPastState(storageOf(files), at, () => {
    const machine = make();
    made.push(machine);
    return machine;
  });
  const outcome = await state.then(
    ({ machine, firstKept }) => ({ texts: machine.texts, firstKept, error: undefined }),
    (error: AppError) => ({ texts: undefined, firstKept: undefined, error }),
  );
  return { ...outcome, made: made.length };
}

test("past state: the snapshot and the entries up to the position", async () => {
  const { files, append } = await member();
  const leader: Entry = { term: 2, index: 11, type: "EntryNormal", data: new Uint8Array(0) };
  const change: Entry = { term: 2, index: 12, type: "EntryConfChangeV2", data: Buffer.from("x") };
  await append(leader, change, ...commands(13, 15));
  expect(await textsAt(files, 10)).toMatchObject({ texts: ["before"], firstKept: 10, made: 1 });
  expect(await textsAt(files, 14)).toMatchObject({ texts: ["before", "e13", "e14"] });
  expect(await textsAt(files, 15)).toMatchObject({ texts: ["before", "e13", "e14", "e15"] });
});

test("past state: many entries are applied in order, each once", async () => {
  const { files, append } = await member();
  await append(...commands(11, 900));
  const texts = ["before", ...commands(11, 899).map(({ index }) => `e${index}`)];
  expect(await textsAt(files, 899)).toMatchObject({ texts });
});

test("past state: starts at the newest snapshot before it that the log leads on from", async () => {
  const { files, append, compact } = await member();
  await append(...commands(11, 20));
  await compact(15, "at 15");
  expect(await textsAt(files, 14)).toMatchObject({
    texts: ["before", "e11", "e12", "e13", "e14"],
    firstKept: 10,
  });
  expect(await textsAt(files, 15)).toMatchObject({ texts: ["at 15"] });
  expect(await textsAt(files, 17)).toMatchObject({ texts: ["at 15", "e16", "e17"] });
});

test("past state: one that is no longer kept is gone, with the first that is", async () => {
  const { files } = await member();
  const { error, made } = await textsAt(files, 9);
  expect(error).toMatchObject({
    code: "gone",
    message: expect.stringContaining(
      "position 9 is no longer kept on this master: the first kept is 10.",
    ),
  });
  expect(made).toBe(1);
});

test("past state: entries that cannot be read are tried four times", async () => {
  const { files, append } = await member();
  await append(command(11));
  const { error, made } = await textsAt(files, 12);
  expect(error).toMatchObject({
    code: "unavailable",
    retryAfterMs: 1_000,
    message: expect.stringMatching(/change faster .*the log from 11 to 12 was read in part/),
  });
  expect(made).toBe(4);
});

test("past state: an attempt that fails is made again, with an empty machine", async () => {
  const { files, append } = await member();
  await append(command(11));
  let attempts = 0;
  const make = () => {
    const machine = new TextMachine();
    const isFirst = attempts++ === 0;
    const apply = machine.apply.bind(machine);
    machine.apply = (commands) =>
      isFirst ? Promise.reject(new Error("replaced")) : apply(commands);
    return machine;
  };
  expect(await textsAt(files, 11, make)).toMatchObject({
    texts: ["before", "e11"],
    firstKept: 10,
    made: 2,
  });
});

test.each(["insufficient_memory", "precondition_failed"] as const)(
  "past state: what fails for %s fails at once",
  async (code) => {
    const { files } = await member();
    const make = () => {
      const machine = new TextMachine();
      machine.restore = () => Promise.reject(new AppError(code, "why"));
      return machine;
    };
    expect(await textsAt(files, 10, make)).toMatchObject({
      error: { code, message: "why" },
      made: 1,
    });
  },
);
