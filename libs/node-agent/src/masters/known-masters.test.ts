// holds: ops-node-later-masters

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { nextClusterId } from "@heddle/base/cluster-id";
import { FollowedCluster } from "@heddle/rpc/followed-cluster";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { KnownMasters } from "./known-masters.ts";
import { PerMaster } from "./per-master.ts";

const CLUSTER = "0123456789abcdef0123456789abcdef";

let folder: string;
let followed: FollowedCluster;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "heddle-masters-"));
  followed = new FollowedCluster(folder);
});
afterEach(() => rmSync(folder, { recursive: true }));

const knowing = (given: readonly string[], staysHere = false) =>
  new KnownMasters({ given, staysHere, followed });

/** The report of a master in a group, given as name and address of each member. */
const report = (
  masterName: string,
  group: Readonly<Record<string, string | undefined>>,
  cluster = CLUSTER,
) => ({
  masterName,
  cluster,
  members: Object.entries(group).map(([name, address]) => ({ name, address })),
});

const three = { m1: "a:1", m2: "b:1", m3: "c:1" };

describe("known masters", () => {
  it("known masters: reported members are looked for until they are removed", () => {
    const masters = knowing(["a:1"]);
    masters.apply("a:1", report("m1", { m1: "a:1" }));
    expect(masters.addresses).toEqual(["a:1"]);
    masters.apply("a:1", report("m1", three));
    expect(masters.addresses).toEqual(["a:1", "b:1", "c:1"]);
    masters.apply("b:1", report("m2", three));
    masters.apply("a:1", undefined);
    expect(masters.addresses).toEqual(["a:1", "b:1", "c:1"]);
    masters.apply("b:1", report("m2", { m2: "b:1", m4: "d:1" }));
    expect(masters.addresses).toEqual(["a:1", "b:1", "d:1"]);
    expect(masters.isRemoved("a:1")).toBe(true);
  });

  it("known masters: without any report all learned ones are kept", () => {
    const masters = knowing(["a:1"]);
    masters.apply("a:1", report("m1", three));
    masters.apply("a:1", undefined);
    expect(masters.addresses).toEqual(["a:1", "b:1", "c:1"]);
    expect(masters.group).toEqual([["a:1"], ["b:1"], ["c:1"]]);
  });

  it("known masters: one that a given address leads to is not looked for twice", () => {
    const masters = knowing(["a.example:1", "b.example:1"]);
    masters.apply("a.example:1", report("m1", three));
    expect(masters.addresses).toEqual(["a.example:1", "b.example:1", "b:1", "c:1"]);
    masters.apply("b.example:1", report("m2", three));
    expect(masters.addresses).toEqual(["a.example:1", "b.example:1", "c:1"]);
    expect(masters.group).toEqual([["a.example:1"], ["b.example:1"], ["c:1"]]);
    // It may have moved: the address that is given leads nowhere now.
    masters.apply("b.example:1", undefined);
    expect(masters.addresses).toContain("b:1");
    expect(masters.group).toContainEqual(["b.example:1", "b:1"]);
  });

  it("known masters: of two addresses for one master the one in use is kept", () => {
    const masters = knowing(["a:1"]);
    masters.apply("a:1", report("m1", { m1: "a:1", m2: "b:1", m3: "c:1" }));
    masters.apply("c:1", report("m3", { m1: "a:2", m2: "b:2", m3: "c:1" }));
    expect(masters.addresses).toEqual(["a:1", "b:1", "c:1"]);
    masters.apply("a:1", undefined);
    expect(masters.addresses).toEqual(["a:1", "c:1", "a:2", "b:2"]);
  });

  it("known masters: a master of an earlier version gives names alone", () => {
    const masters = knowing(["a:1", "b:1"]);
    masters.apply("a:1", report("m1", { m1: undefined, m2: undefined, m3: undefined }));
    expect(masters.addresses).toEqual(["a:1", "b:1"]);
    expect(masters.group).toEqual([["a:1"], [], []]);
  });

  it.each([
    ["no port", "b"],
    ["any interface", "0.0.0.0:1"],
    ["any interface of IPv6", "[::]:1"],
    ["another machine's loopback", "127.0.0.1:1"],
    ["too many bytes", `${"b".repeat(300)}:1`],
  ])("known masters: an address is refused for %s", (_, address) => {
    const masters = knowing(["a:1"]);
    masters.apply("a:1", report("m1", { m1: "a:1", m2: address }));
    expect(masters.addresses).toEqual(["a:1"]);
  });

  it("known masters: plain text on loopback stays there", () => {
    const masters = knowing(["127.0.0.1:1"], true);
    masters.apply("127.0.0.1:1", report("m1", { m1: "x", m2: "b:1", m3: "127.0.0.1:3" }));
    expect(masters.addresses).toEqual(["127.0.0.1:1", "127.0.0.1:3"]);
  });

  it("known masters: no more than sixteen are learned", () => {
    const masters = knowing(["a:1"]);
    const many = Object.fromEntries(Array.from({ length: 99 }, (_, at) => [`n${at}`, `n${at}:1`]));
    masters.apply("a:1", report("m1", many));
    expect(masters.addresses).toHaveLength(17);
    masters.apply("stranger:1", report("m9", { m9: "stranger:1" }));
    expect(masters.addresses).toHaveLength(17);
  });

  it("known masters: those of a cluster that has ended are not learned", async () => {
    await followed.follow(nextClusterId(CLUSTER, 20, "ab"));
    const masters = knowing(["a:1", "b:1"]);
    masters.apply("a:1", report("m1", three));
    expect(masters.addresses).toEqual(["a:1", "b:1"]);
    masters.apply("b:1", report("m2", { m2: "b:1", m4: "d:1" }, nextClusterId(CLUSTER, 20, "ab")));
    expect(masters.addresses).toEqual(["a:1", "b:1", "d:1"]);
    expect(masters.group).toEqual([["b:1"], ["d:1"]]);
  });

  it("per master: one is opened for each that is learned, and closed with it", async () => {
    const masters = knowing(["a:1"]);
    const open = new Set<string>();
    const each = new PerMaster(masters, (master) => {
      open.add(master);
      return { close: async () => void open.delete(master) };
    });
    expect([...open]).toEqual(["a:1"]);
    masters.apply("a:1", report("m1", three));
    expect([...open]).toEqual(["a:1", "b:1", "c:1"]);
    masters.apply("a:1", report("m1", { m1: "a:1", m3: "c:1" }));
    expect([...open]).toEqual(["a:1", "c:1"]);
    await each.close();
    masters.apply("a:1", report("m1", three));
    expect(open.size).toBe(0);
  });
});
