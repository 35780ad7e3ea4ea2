// holds: key-lifecycle

import { describe, expect, it } from "vitest";
import { grants } from "./scopes.ts";

describe("grants", () => {
  it.each([
    [["*"], "cluster:admin", true],
    [["models:deploy"], "models:deploy", true],
    [["models:deploy"], "models:read", false],
    [["models:*"], "models:read", true],
    [["models:*"], "modelsx:read", false],
    [["cluster:admin"], "cluster:read", true],
    [["cluster:admin"], "jobs:read", false],
    [["cluster:read"], "cluster:admin", false],
    [[], "models:read", false],
    [["models:admin"], "modelsx:read", false],
    [["jobs:admin"], "jobs:create", true],
    [["models:read"], "undefined:read", false],
    [["jobs:read", "models:read"], "models:read", true],
  ])("%j grants %s: %s", (scopes, permission, expected) => {
    expect(grants(scopes, permission)).toBe(expected);
  });
});
