import { execFileSync } from "node:child_process";
import { readdirSync } from "node:fs";
import { join } from "node:path";
import { expect, it } from "vitest";
import { installedProgram } from "./kube-tools.ts";

const UNITS = join(import.meta.dirname, "..", "..", "deploy", "systemd");
const files = readdirSync(UNITS);
const analyze = installedProgram("systemd-analyze");
if (!analyze) console.log("systemd-analyze is not here: the units are not verified");

it("systemd: there is a unit for each role", () => {
  expect(files.sort()).toEqual(
    ["master", "parameter-server", "worker"].map((role) => `heddle-${role}.service`),
  );
});

it.skipIf(!analyze).each(files)("systemd: %s has no fault that systemd-analyze knows", (name) => {
  // What it finds it writes to its error output, also where it ends with 0.
  const program = `${analyze} verify --man=no ${join(UNITS, name)} 2>&1`;
  expect(execFileSync("sh", ["-c", program], { encoding: "utf8" })).toBe("");
});
