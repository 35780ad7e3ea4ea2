import { createMessage } from "@heddle/raft/core/message";
import type { Entry } from "@heddle/raft/log/entry";
import { encodeConfChange } from "@heddle/raft/membership/conf-change";
import { expect, test } from "vitest";
import { encodeProposal } from "../proposals/entry-codec.ts";
import { MemoryFiles } from "../testing/memory-files.ts";
import { TextMachine } from "../testing/replica-group.ts";
import { DurableLog } from "./durable-log.ts";
import { encodeContext, firstMembership } from "./membership.ts";
import { foundGroup, readOfflineState } from "./offline-state.ts";

const member = (id: number, name = `m${id}`) => {
  return { id, name, address: `${name}:1`, nonce: `${id}${name}` };
};
const ID = { node: 1, incarnation: 1, sequence: 1 };

const storageOf = (files: MemoryFiles) => {
  const onDamaged = (error: Error) => {
    throw error;
  };
  return {
    files,
    directory: "data",
    owner: { cluster: "c", node: "1" },
    onDamaged,
    segmentBytes: 65_536,
  };
};

const command = (index: number, text: string): Entry => {
  const data = encodeProposal(ID, Buffer.from(text));
  return { term: 2, index, type: "EntryNormal", data };
};

function joins(index: number, id: number, name?: string): Entry {
  const changes = [{ type: "addLearnerNode" as const, nodeId: id }];
  const context = encodeContext(ID, [member(id, name)]);
  return { term: 2, index, ...encodeConfChange({ transition: "auto", changes, context }) };
}

/** A stopped member's files: entries from 2 on, of which it knows this many as committed. */
async function stopped(entries: readonly Entry[], commit: number): Promise<MemoryFiles> {
  const files = new MemoryFiles();
  const restore = () => Promise.resolve();
  const log = await DurableLog.open({ ...storageOf(files), restore });
  await log.bootstrap(firstMembership([member(1)]), [Buffer.from("before\n")]);
  await log.write(
    createMessage({ type: "MsgStorageAppend", to: 1, term: 2, vote: 1, commit, entries }),
  );
  await log.close();
  return files;
}

test("offline: the snapshot and the whole log are taken in", async () => {
  const leader: Entry = { term: 2, index: 2, type: "EntryNormal", data: new Uint8Array(0) };
  const files = await stopped([leader, command(3, "a"), command(4, "b"), command(5, "c")], 3);
  const machine = new TextMachine();
  expect(await readOfflineState(storageOf(files), machine)).toEqual({
    last: { index: 5, term: 2 },
    unconfirmed: 2,
    members: [member(1)],
    isEmpty: false,
  });
  expect(machine.texts).toEqual(["before", "a", "b", "c"]);
});

test("offline: a commit index behind the snapshot counts from that", async () => {
  const files = await stopped([command(2, "a")], 0);
  const { unconfirmed } = await readOfflineState(storageOf(files), new TextMachine());
  expect(unconfirmed).toBe(1);
});

test("offline: changes of members count unless they were refused", async () => {
  const files = await stopped(
    [joins(2, 2), joins(3, 2, "late"), joins(4, 3, "m1"), joins(5, 3)],
    5,
  );
  const { members } = await readOfflineState(storageOf(files), new TextMachine());
  expect(members).toEqual([member(1), member(2), member(3)]);
});

test("offline: long entries are taken in piece by piece, each once", async () => {
  const texts = Array.from({ length: 7 }, (_, i) => String(i).repeat(400_000));
  const files = await stopped(
    texts.map((text, i) => command(i + 2, text)),
    8,
  );
  const machine = new TextMachine();
  await readOfflineState(storageOf(files), machine);
  expect(machine.texts.slice(1).map((text) => text[0])).toEqual([..."0123456"]);
});

test("offline: an empty directory is empty", async () => {
  const state = await readOfflineState(storageOf(new MemoryFiles()), new TextMachine());
  expect(state).toMatchObject({ isEmpty: true, members: [], last: { index: 0, term: 0 } });
});

test("offline: a new group continues after the given entry", async () => {
  const files = new MemoryFiles();
  const state = [Buffer.from("kept\n")];
  await foundGroup(storageOf(files), member(9), { index: 40, term: 7 }, state);
  const machine = new TextMachine();
  expect(await readOfflineState(storageOf(files), machine)).toEqual({
    last: { index: 40, term: 7 },
    unconfirmed: 0,
    members: [member(9)],
    isEmpty: false,
  });
  expect(machine.texts).toEqual(["kept"]);
  const again = foundGroup(storageOf(files), member(9), { index: 41, term: 7 }, state);
  await expect(again).rejects.toThrow();
});
