import { execFileSync } from "node:child_process";
import { chmodSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";

const ROOT = fileURLToPath(new URL("..", import.meta.url));

test.skipIf(process.platform === "win32")(
  "the heddle command runs by its file once it is set up",
  () => {
    const { bin } = JSON.parse(readFileSync(join(ROOT, "apps/cli/package.json"), "utf8"));
    const command = join(ROOT, "apps/cli", bin.heddle);
    // As tsc writes it.
    chmodSync(command, 0o644);
    execFileSync(process.execPath, [join(ROOT, "tools/setup.mjs"), "--if-missing"]);
    expect(execFileSync(command, ["--version"], { encoding: "utf8" })).toMatch(/\d+\.\d+\.\d+/);
  },
);
