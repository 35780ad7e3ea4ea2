// holds: access-roles

import { describe, expect, it } from "vitest";
import { Grants, grantsOfScopes } from "./grants.ts";

describe("grants", () => {
  it("of a project hold in it alone, and never for the cluster", () => {
    const held = new Grants().allow(["*"], "vision");
    expect(held.may("jobs:create", "vision")).toBe(true);
    expect(held.may("jobs:create", "speech")).toBe(false);
    for (const ofCluster of ["cluster:admin", "cluster:read", "models:deploy", "jobs:privileged"]) {
      expect(held.may(ofCluster, "vision"), ofCluster).toBe(false);
    }
    expect([held.isOfCluster, held.projects]).toEqual([false, ["vision"]]);
    expect([held.in("vision").includes("jobs:create"), held.in("speech")]).toEqual([true, []]);
  });

  it("of the cluster hold in every project", () => {
    const held = new Grants().allow(["jobs:*"], undefined).allow(["files:read"], "vision");
    expect(held.may("jobs:cancel", "speech")).toBe(true);
    expect(held.may("files:read", "speech")).toBe(false);
    expect(held.may("files:read", "vision")).toBe(true);
    expect([held.isOfCluster, held.projects]).toEqual([true, undefined]);
  });

  it("are equal where they grant the same, in any order", () => {
    const made = (...names: string[]) =>
      names.reduce((held, name) => held.allow(["jobs:read"], name), new Grants());
    expect(made("a", "b").equals(made("b", "a"))).toBe(true);
    expect(made("a").equals(made("a", "b"))).toBe(false);
    expect(made("a").equals(made("b"))).toBe(false);
    expect(made("a").equals(made("a").allow(["jobs:create"], "a"))).toBe(false);
    expect(made("a").equals(made("a").allow(["cluster:read"], undefined))).toBe(false);
  });

  it("of the cluster alone give no project", () => {
    const held = new Grants().allow(["cluster:read"], undefined);
    expect([held.isEmpty, held.isOfCluster, held.projects]).toEqual([false, false, []]);
    expect(new Grants().allow(["cluster:admin"], "vision").isEmpty).toBe(true);
  });

  it.each([
    // scopes, project, permission, where, expected
    [["*"], undefined, "cluster:admin", "any", true],
    [["*"], undefined, "jobs:read", "any", true],
    [["*"], "vision", "cluster:admin", "vision", false],
    [["*"], "vision", "jobs:read", "vision", true],
    [["*"], "vision", "jobs:read", "default", false],
    [["jobs:*"], undefined, "jobs:read", "default", true],
    [["jobs:*"], undefined, "jobs:read", "vision", false],
    [["jobs:*"], undefined, "jobs:privileged", "vision", true],
    [["cluster:admin", "jobs:read"], undefined, "jobs:read", "vision", true],
    [["cluster:admin", "jobs:read"], "speech", "jobs:read", "vision", false],
    [["cluster:admin", "jobs:read"], "speech", "cluster:admin", "vision", true],
    [["models:deploy"], "speech", "models:deploy", "speech", true],
  ] as const)(
    "of the scopes %j of a key of %s: %s in %s is %s",
    (scopes, project, permission, where, expected) => {
      expect(grantsOfScopes(scopes, project, "default").may(permission, where)).toBe(expected);
    },
  );
});
