// holds: key-rotation

import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { apply, emptyState } from "./apply.ts";
import type { CatalogCommand } from "./command.ts";
import type { ApiKeyRecord, ControlState, DeploymentRecord, ModelRecord } from "./state.ts";

/** The state as plain JSON, insertion order included. */
const plain = (state: ControlState) =>
  Object.entries(state).map(([name, map]) => [name, ...(map as Map<string, unknown>)]);

const key = (id: string, more: Partial<ApiKeyRecord> = {}): ApiKeyRecord => ({
  id,
  name: "test",
  hash: "ab".repeat(32),
  scopes: ["*"],
  models: [],
  limits: {},
  createdAtMs: 1,
  ...more,
});

const model = (id: string, deployment: string, more: Partial<ModelRecord> = {}): ModelRecord => ({
  id,
  family: "A",
  contextWindow: 131_072,
  availability: "Free (Beta)",
  intendedUse: "tests",
  ownedBy: "heddle",
  capabilities: ["chat"],
  createdAtMs: 1,
  deployment,
  backing: "tiny",
  standIn: true,
  ...more,
});

const deployment = (
  name: string,
  replicas: DeploymentRecord["replicas"] = 1,
): DeploymentRecord => ({
  replicas,
  spec: {
    key: name,
    engine: "llama",
    weights: { key: name, file: `${name}.gguf`, sources: [`builtin://${name}`] },
    options: {},
  },
});

const create = (record: ApiKeyRecord): CatalogCommand => ({
  type: "key.create",
  atMs: 1,
  key: record,
});
const rotate = (
  id: string,
  next: ApiKeyRecord,
  atMs: number,
  expiresAtMs: number,
): CatalogCommand => ({ type: "key.rotate", atMs, id, key: next, expiresAtMs });
const register = (id: string, on: string, more: Partial<ModelRecord> = {}): CatalogCommand => ({
  type: "model.register",
  atMs: 1,
  model: model(id, on, more),
  deployment: deployment(on),
});

const ids = fc.constantFrom("aaaaaaaa", "bbbbbbbb", "cccccccc");
const names = fc.constantFrom("m1", "m2", "m3");
const commands: fc.Arbitrary<CatalogCommand> = fc.oneof(
  ids.map((id) => create(key(id))),
  fc
    .tuple(ids, fc.nat(100))
    .map(([id, atMs]): CatalogCommand => ({ type: "key.revoke", atMs, id })),
  fc
    .tuple(names, fc.constantFrom("d1", "d2"), fc.boolean())
    .map(([id, on, standIn]) => register(id, on, { standIn })),
  fc
    .tuple(ids, ids, fc.nat(100))
    .map(([id, next, atMs]): CatalogCommand => rotate(id, key(next), atMs, atMs + 10)),
  fc
    .tuple(names, fc.boolean())
    .map(([id, isReplaced]): CatalogCommand => ({ type: "model.remove", atMs: 1, id, isReplaced })),
);

describe("apply", () => {
  it("replay: gives the same state and replies, also from JSON", () => {
    fc.assert(
      fc.property(fc.array(commands, { maxLength: 60 }), (log) => {
        const first = emptyState();
        const replies = log.map((command) => apply(first, command));
        const second = emptyState();
        const again = log.map((command) =>
          apply(second, JSON.parse(JSON.stringify(command)) as CatalogCommand),
        );
        expect(again).toEqual(replies);
        expect(plain(second)).toEqual(plain(first));
      }),
    );
  });

  it("deployments: one exists exactly while a model names it", () => {
    fc.assert(
      fc.property(fc.array(commands, { maxLength: 60 }), (log) => {
        const state = emptyState();
        for (const command of log) apply(state, command);
        const named = new Set([...state.models.values()].map((record) => record.deployment));
        expect([...state.deployments.keys()].sort()).toEqual([...named].sort());
      }),
    );
  });

  it("refusal: changes nothing", () => {
    fc.assert(
      fc.property(fc.array(commands, { maxLength: 40 }), (log) => {
        const state = emptyState();
        for (const command of log) {
          const before = JSON.stringify(plain(state));
          const reply = apply(state, command);
          if (!reply.ok) expect(JSON.stringify(plain(state))).toBe(before);
        }
      }),
    );
  });

  it("revoke: the first time stays", () => {
    const state = emptyState();
    apply(state, create(key("aaaaaaaa")));
    apply(state, create(key("bbbbbbbb")));
    expect(apply(state, { type: "key.revoke", atMs: 7, id: "aaaaaaaa" })).toEqual({ ok: true });
    expect(apply(state, { type: "key.revoke", atMs: 9, id: "aaaaaaaa" })).toEqual({ ok: true });
    expect(state.keys.get("aaaaaaaa")?.revokedAtMs).toBe(7);
  });

  it("rotate: the old key expires at the given time or at its own, if earlier", () => {
    const state = emptyState();
    apply(state, create(key("aaaaaaaa")));
    expect(apply(state, rotate("aaaaaaaa", key("bbbbbbbb"), 10, 50))).toEqual({ ok: true });
    expect(state.keys.get("aaaaaaaa")?.expiresAtMs).toBe(50);
    expect(apply(state, rotate("aaaaaaaa", key("cccccccc"), 20, 90))).toEqual({ ok: true });
    expect(state.keys.get("aaaaaaaa")?.expiresAtMs).toBe(50);
    const refused = (code: string) => expect.objectContaining({ ok: false, code });
    expect(apply(state, rotate("aaaaaaaa", key("dddddddd"), 50, 90))).toEqual(refused("conflict"));
    expect(apply(state, rotate("bbbbbbbb", key("cccccccc"), 1, 2))).toEqual(refused("conflict"));
    expect(apply(state, rotate("none0000", key("dddddddd"), 1, 2))).toEqual(refused("not_found"));
    const back = rotate("bbbbbbbb", key("dddddddd"), 9, 8);
    expect(apply(state, back)).toEqual(refused("invalid_value"));
    apply(state, { type: "key.revoke", atMs: 60, id: "cccccccc" });
    expect(apply(state, rotate("cccccccc", key("dddddddd"), 61, 70))).toEqual(refused("conflict"));
    expect([...state.keys.keys()]).toEqual(["aaaaaaaa", "bbbbbbbb", "cccccccc"]);
  });

  it("rotate: a key with an active successor is refused, except in old logs", () => {
    const state = emptyState();
    apply(state, create(key("aaaaaaaa")));
    const next = (id: string, more: Partial<ApiKeyRecord> = {}) =>
      rotate("aaaaaaaa", key(id, { rotatedFrom: "aaaaaaaa", ...more }), 10, 500);
    expect(apply(state, next("bbbbbbbb"))).toEqual({ ok: true });
    expect(apply(state, next("cccccccc"))).toMatchObject({
      ok: false,
      code: "conflict",
      message: expect.stringContaining("the key bbbbbbbb has taken its place and is in use"),
    });
    // Logs of earlier versions hold such commands, and apply accepted them.
    expect(apply(state, rotate("aaaaaaaa", key("dddddddd"), 10, 500))).toEqual({ ok: true });
    apply(state, { type: "key.revoke", atMs: 10, id: "bbbbbbbb" });
    expect(apply(state, next("eeeeeeee", { expiresAtMs: 10 }))).toEqual({ ok: true });
    expect(apply(state, next("ffffffff"))).toEqual({ ok: true });
    expect([...state.keys.keys()].map(([letter]) => letter).join("")).toBe("abdef");
  });

  it("removed models: the last 1,000 are remembered until they are registered again", () => {
    const state = emptyState();
    const remove = (id: string, isReplaced?: boolean) =>
      apply(state, { type: "model.remove", atMs: 7, id, isReplaced });
    for (let i = 0; i <= 1_000; i++) {
      apply(state, register(`m${i}`, "d"));
      remove(`m${i}`);
    }
    expect(state.removedModels.size).toBe(1_000);
    expect(state.removedModels.has("m0")).toBe(false);
    expect(state.removedModels.get("m1")).toEqual({ atMs: 7 });
    apply(state, register("m1", "d"));
    expect(state.removedModels.has("m1")).toBe(false);
    remove("m1", true);
    expect(state.removedModels.has("m1")).toBe(false);
  });

  it("revoke: the last active key with all permissions stays", () => {
    const state = emptyState();
    const revoke = (id: string, atMs: number) => apply(state, { type: "key.revoke", atMs, id });
    apply(state, create(key("aaaaaaaa")));
    apply(state, create(key("bbbbbbbb", { expiresAtMs: 10 })));
    apply(state, create(key("cccccccc", { scopes: ["cluster:admin"] })));
    expect(revoke("aaaaaaaa", 10)).toMatchObject({ ok: false, code: "conflict" });
    expect(state.keys.get("aaaaaaaa")?.revokedAtMs).toBeUndefined();
    expect(revoke("cccccccc", 10)).toEqual({ ok: true });
    expect(revoke("bbbbbbbb", 10)).toEqual({ ok: true });
    apply(state, create(key("dddddddd")));
    expect(revoke("aaaaaaaa", 11)).toEqual({ ok: true });
    expect(revoke("dddddddd", 12)).toMatchObject({ ok: false, code: "conflict" });
  });

  it("register: a repeated one succeeds, one that differs is refused", () => {
    const state = emptyState();
    expect(apply(state, register("m", "d"))).toEqual({ ok: true });
    expect(apply(state, register("m", "d"))).toEqual({ ok: true });
    expect(apply(state, register("m", "d", { family: "B" }))).toMatchObject({ code: "conflict" });
    const other = { ...register("n", "d"), deployment: deployment("d", "every-worker") };
    expect(apply(state, other as CatalogCommand)).toMatchObject({ code: "conflict" });
    expect(state.models.size).toBe(1);
  });

  it.each([
    ["a short id", create(key("short"))],
    ["a bad hash", create(key("aaaaaaaa", { hash: "zz" }))],
    ["an empty name", create(key("aaaaaaaa", { name: "" }))],
    ["a limit of zero", create(key("aaaaaaaa", { limits: { concurrency: 0 } }))],
    ["a model id with a space", register("a b", "d")],
    ["a context of zero", register("m", "d", { contextWindow: 0 })],
    [
      "a deployment under another name",
      { ...register("m", "d"), deployment: deployment("e") } as CatalogCommand,
    ],
    [
      "a negative number of replicas",
      { ...register("m", "d"), deployment: deployment("d", -1) } as CatalogCommand,
    ],
    ["an unknown command", { type: "model.paint", atMs: 1 } as unknown as CatalogCommand],
  ])("refuses %s with invalid_value", (_what, command) => {
    expect(apply(emptyState(), command)).toMatchObject({ ok: false, code: "invalid_value" });
  });

  it("not found: commands on unknown ids are refused with not_found", () => {
    const state = emptyState();
    expect(apply(state, { type: "model.remove", atMs: 1, id: "m" })).toMatchObject({
      code: "not_found",
    });
    expect(apply(state, { type: "key.revoke", atMs: 1, id: "k" })).toMatchObject({
      code: "not_found",
    });
  });
});
