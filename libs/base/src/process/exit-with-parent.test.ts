// holds: start-child-ends

import { spawn } from "node:child_process";
import { describe, expect, it } from "vitest";
import { PARENT_PIPE_VARIABLE } from "./exit-with-parent.ts";

const MODULE = new URL("./exit-with-parent.ts", import.meta.url).href;

/** Starts a process that reports when it watches, closes its input, and returns how it ended. */
async function closeInput(
  before: string,
  env: NodeJS.ProcessEnv,
  livesMs = 100_000,
): Promise<string> {
  const code = `
    import { exitWithParent } from ${JSON.stringify(MODULE)};
    ${before}
    exitWithParent();
    setTimeout(() => process.exit(9), ${livesMs});
    console.log("watching");
  `;
  const child = spawn(process.execPath, ["--input-type=module", "-e", code], {
    stdio: ["pipe", "pipe", "inherit"],
    env: { ...process.env, ...env },
  });
  child.stdout.once("data", () => child.stdin.end());
  return await new Promise((resolve) => {
    child.once("close", (status, signal) => resolve(signal ?? `code ${status}`));
  });
}

describe("a child process and its parent", () => {
  const supervised = { [PARENT_PIPE_VARIABLE]: "stdin" };

  it("the child ends by SIGTERM when its input closes", async () => {
    expect(await closeInput("", supervised)).toBe("SIGTERM");
  });

  it("the child's own shutdown handler runs first", async () => {
    const handler = 'process.on("SIGTERM", () => setTimeout(() => process.exit(4), 50));';
    expect(await closeInput(handler, supervised)).toBe("code 4");
  });

  it("the child survives where no supervisor watches it", async () => {
    expect(await closeInput("", { [PARENT_PIPE_VARIABLE]: "" }, 700)).toBe("code 9");
  });
});
