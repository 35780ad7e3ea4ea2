import fc from "fast-check";
import { expect, test } from "vitest";
import { LIMITED_TASKS, STORES_DOCUMENTS } from "../cluster-version.ts";
import type { ControlCommand } from "../command.ts";
import { ProjectStorage } from "../project-storage.ts";
import { ReplicatedControl } from "../replicated-control.ts";
import { newestControl } from "../testing/newest-control.ts";
import { DocumentIndex } from "./document-index.ts";
import { roomRefusal } from "./documents-state-machine.ts";
import { type DocumentName, documentKey, type NewDocument } from "./records.ts";

const OWNERS = ["aaaaaaaa", "bbbbbbbb"];
const digestOf = (byte: number) => byte.toString(16).padStart(2, "0").repeat(32);

const names: fc.Arbitrary<DocumentName> = fc.record({
  kind: fc.constantFrom("response", "file"),
  id: fc.constantFrom("d1", "d2", "d3"),
  owner: fc.constantFrom(...OWNERS),
});
const times = fc.nat(100);
const commands: fc.Arbitrary<ControlCommand> = fc.oneof(
  fc
    .record({
      name: names,
      atMs: times,
      byte: fc.nat(3),
      parts: fc.option(fc.array(fc.nat(3), { maxLength: 3 }), { nil: undefined }),
      bytes: fc.integer({ min: -1, max: 600_000 }),
      project: fc.option(fc.constantFrom("p", "q"), { nil: undefined }),
      expiresAtMs: fc.option(fc.integer({ min: 1, max: 150 }), { nil: undefined }),
      ifVersion: fc.option(fc.nat(20), { nil: undefined }),
    })
    .map(
      ({ name, atMs, byte, parts, bytes, project, expiresAtMs, ifVersion }): ControlCommand => ({
        type: "document.put",
        atMs,
        document: {
          ...name,
          ...(project !== undefined && { project }),
          expiresAtMs,
          digest: digestOf(byte),
          ...(parts && { parts: parts.map(digestOf) }),
          bytes,
        },
        ifVersion,
      }),
    ),
  fc
    .tuple(names, times)
    .map(([name, atMs]): ControlCommand => ({ type: "document.delete", atMs, ...name })),
  times.map((atMs): ControlCommand => ({ type: "documents.expire", atMs })),
);

function applyTo(control: ReplicatedControl, command: ControlCommand) {
  return control.apply({ type: "control", command }, control.index + 1);
}

/** A control that holds at most five documents and 2 MiB, and an owner half of it. */
function limited(): ReplicatedControl {
  const control = newestControl();
  const set = (name: string, value: number) =>
    expect(applyTo(control, { type: "setting.put", atMs: 0, name, value }).ok).toBe(true);
  set("documents", 5);
  set("documents_mib", 2);
  set("owner_documents", 3);
  set("owner_documents_mib", 1);
  return control;
}

function document(id: string, more: Partial<NewDocument> = {}) {
  const name = { kind: "response", id, owner: "aaaaaaaa" } as const;
  return { ...name, digest: digestOf(1), bytes: 10, ...more };
}

function put(
  control: ReplicatedControl,
  id: string,
  more: Partial<NewDocument & { bytes: number; digest: string }> = {},
  ifVersion?: number,
  atMs = 1,
) {
  return applyTo(control, {
    type: "document.put",
    atMs,
    document: document(id, more),
    ifVersion,
  });
}

test("documents: replay from JSON and a snapshot give the same state and index", async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(commands, { maxLength: 60 }), async (log) => {
      const [first, second] = [limited(), limited()];
      for (const command of log) {
        const reply = applyTo(first, command);
        expect(applyTo(second, JSON.parse(JSON.stringify(command)))).toEqual(reply);
      }
      expect(second.hash).toBe(first.hash);
      const restored = new ReplicatedControl();
      await restored.restore(first.snapshot());
      expect(restored.hash).toBe(first.hash);
      expect(viewOf(restored)).toEqual(viewOf(first));
    }),
  );
});

/** All that the index says, sorted where its order is not defined. */
function viewOf({ documents }: ReplicatedControl) {
  return {
    total: documents.total,
    storage: ["p", "q", "default"].map((name) => documents.storage.useOf(name)),
    digests: [...documents.digests].sort(),
    firstDue: documents.firstDue,
    owners: OWNERS.map((owner) => documents.useOf(owner)),
    lists: OWNERS.map((owner) =>
      (["response", "file"] as const).map((kind) => {
        const list = documents.list(owner, kind);
        return Array.from({ length: list.length }, (_, at) => list.at(at));
      }),
    ),
  };
}

test("documents: no sequence of commands exceeds a limit, and the index counts truly", () => {
  fc.assert(
    fc.property(fc.array(commands, { maxLength: 60 }), (log) => {
      const control = limited();
      for (const command of log) applyTo(control, command);
      const records = [...control.state.documents.values()];
      const sum = (of: typeof records) => ({
        count: of.length,
        bytes: of.reduce((total, { bytes }) => total + bytes, 0),
      });
      expect(control.documents.total).toEqual(sum(records));
      expect(records.length).toBeLessThanOrEqual(5);
      expect(control.documents.total.bytes).toBeLessThanOrEqual(2 * 2 ** 20);
      for (const owner of OWNERS) {
        const use = control.documents.useOf(owner);
        expect(use).toEqual(sum(records.filter((record) => record.owner === owner)));
        expect(use.count).toBeLessThanOrEqual(3);
        expect(use.bytes).toBeLessThanOrEqual(2 ** 20);
      }
      for (const record of records) {
        expect(control.state.documents.get(documentKey(record))).toBe(record);
        expect(control.documents.digests.get(record.digest)).toBeGreaterThan(0);
      }
    }),
  );
});

test("documents: a refused command changes nothing", () => {
  fc.assert(
    fc.property(fc.array(commands, { maxLength: 40 }), (log) => {
      const control = limited();
      for (const command of log) {
        const before = [...control.state.documents];
        const view = viewOf(control);
        if (applyTo(control, command).ok) continue;
        expect([...control.state.documents]).toEqual(before);
        expect(viewOf(control)).toEqual(view);
      }
    }),
  );
});

test("documents: put compares and sets by version, which no later document has again", () => {
  const control = newestControl();
  const first = put(control, "r1", {}, 0);
  expect(first).toMatchObject({ ok: true, document: { createdVersion: 1, version: 1 } });
  expect(put(control, "r1", {}, 0)).toMatchObject({ ok: false, code: "precondition_failed" });
  expect(put(control, "r1", {}, 7)).toMatchObject({ ok: false, code: "precondition_failed" });
  expect(put(control, "r1", { bytes: 11 }, 1)).toMatchObject({ ok: true, version: 4 });
  const name = { kind: "response", id: "r1", owner: "aaaaaaaa" } as const;
  expect(applyTo(control, { type: "document.delete", atMs: 1, ...name }).ok).toBe(true);
  expect(put(control, "r1", {}, 4)).toMatchObject({ ok: false, code: "precondition_failed" });
  expect(put(control, "r1", {}, 0)).toMatchObject({ document: { createdVersion: 7, version: 7 } });
});

test("documents: an expired one counts as absent, and the leader's command removes it", () => {
  const control = newestControl();
  put(control, "r1", { expiresAtMs: 10 }, 0);
  put(control, "r2", { expiresAtMs: 30 }, 0);
  put(control, "r3", {}, 0);
  expect(control.documents.firstDue?.id).toBe("r1");
  const name = { kind: "response", id: "r1", owner: "aaaaaaaa" } as const;
  const late = applyTo(control, { type: "document.delete", atMs: 10, ...name });
  expect(late).toMatchObject({ ok: false, code: "not_found" });
  expect(put(control, "r1", { expiresAtMs: 40 }, 0, 10)).toMatchObject({ ok: true });
  applyTo(control, { type: "documents.expire", atMs: 29 });
  expect(control.documents.total.count).toBe(3);
  applyTo(control, { type: "documents.expire", atMs: 30 });
  expect([...control.state.documents.keys()]).toEqual([
    "aaaaaaaa/response/r1",
    "aaaaaaaa/response/r3",
  ]);
});

test("documents: lists hold an owner's documents of a kind, oldest first", () => {
  const control = newestControl();
  const name = (id: string) => ({ kind: "response", id, owner: "aaaaaaaa" }) as const;
  const ids = () => {
    const list = control.documents.list("aaaaaaaa", "response");
    return Array.from({ length: list.length }, (_, at) => list.at(at)?.id);
  };
  for (const id of ["e", "a", "d", "b", "c"]) put(control, id);
  put(control, "f", { kind: "file" });
  put(control, "g", { owner: "bbbbbbbb" });
  expect(ids()).toEqual(["e", "a", "d", "b", "c"]);
  // A changed document keeps its place, and those of the list can be found.
  put(control, "a", { bytes: 11 });
  expect(ids()).toEqual(["e", "a", "d", "b", "c"]);
  const list = control.documents.list("aaaaaaaa", "response");
  const places = ids().map((id) =>
    list.placeOf(control.state.documents.get(documentKey(name(id ?? "")))!),
  );
  expect(places).toEqual([0, 1, 2, 3, 4]);
  for (const id of ["d", "e", "c"]) {
    applyTo(control, { type: "document.delete", atMs: 2, ...name(id) });
  }
  expect(ids()).toEqual(["a", "b"]);
});

test("documents: limits say what is full and which setting raises it", () => {
  const control = limited();
  const owner = "bbbbbbbb";
  for (const id of ["r1", "r2", "r3"]) expect(put(control, id).ok).toBe(true);
  expect(put(control, "r4")).toMatchObject({
    code: "insufficient_storage",
    message: expect.stringMatching(/this key's documents are 3, .* setting owner_documents$/),
  });
  expect(put(control, "r3", { bytes: 20 }).ok).toBe(true);
  expect(put(control, "r3", { bytes: 2 ** 20 })).toMatchObject({
    message: expect.stringMatching(/this needs 1048556 more, .* owner_documents_mib$/),
  });
  expect(put(control, "r1", { owner }).ok && put(control, "r2", { owner }).ok).toBe(true);
  expect(put(control, "r3", { owner })).toMatchObject({
    message: expect.stringMatching(/the cluster's documents are 5, .* setting documents$/),
  });
  const size = { owner, bytes: 10 };
  expect(roomRefusal(control.state, control.documents, size)?.code).toBe("insufficient_storage");
});

test("documents: malformed records are refused", () => {
  const control = newestControl();
  const faults: Partial<NewDocument & { bytes: number; digest: string }>[] = [
    { kind: "image" as never },
    { id: "a/b" },
    { owner: "" },
    { digest: "ab" },
    { bytes: 65 * 2 ** 20 },
    { bytes: 1.5 },
    { expiresAtMs: -1 },
    { metadata: { text: "x".repeat(1_024) } },
    { metadata: { number: 1 as never } },
  ];
  for (const fault of faults) {
    expect(put(control, "r1", fault), JSON.stringify(fault)).toMatchObject({
      ok: false,
      code: "invalid_value",
    });
  }
});

test("documents: version 5 treats their commands as unknown", () => {
  const control = new ReplicatedControl();
  control.apply({ type: "version.raise", atMs: 0, version: LIMITED_TASKS }, 1);
  expect(() => put(control, "r1")).toThrow(/does not know .*document.put/);
  control.apply({ type: "version.raise", atMs: 0, version: STORES_DOCUMENTS }, 2);
  expect(put(control, "r1").ok).toBe(true);
});

test("documents: the state's share is a limit too", () => {
  const control = newestControl();
  applyTo(control, { type: "setting.put", atMs: 0, name: "state_mib", value: 16 });
  const metadata = { text: "x".repeat(1_000) };
  for (let at = 0; ; at++) {
    const reply = put(control, `r${at}`, { metadata });
    if (reply.ok) continue;
    expect(reply).toMatchObject({ code: "insufficient_storage" });
    expect(reply.message).toMatch(/bytes of documents, .* cluster setting state_mib/);
    expect(at).toBeGreaterThan(500);
    break;
  }
});

test("documents: the index of none is empty", () => {
  const index = new DocumentIndex([], new ProjectStorage(), () => "default");
  expect([index.total, index.firstDue]).toEqual([{ count: 0, bytes: 0 }, undefined]);
  expect(index.list("aaaaaaaa", "file").length).toBe(0);
});
