// holds: cli-verbs

import { spawn } from "node:child_process";
import { describe, expect, it } from "vitest";
import { MAIN, ScriptedApi, USAGE } from "./testing/scripted-api.ts";

const api = new ScriptedApi();
const { calls } = api;
const heddle = api.heddle.bind(api);

describe("chat", () => {
  it("chats with the first ready model: the answer on stdout, its speed on stderr", async () => {
    const { code, stdout, stderr } = await heddle(["chat", "Hi", "--system", "Be brief."]);
    expect({ code, stdout }).toEqual({ code: 0, stdout: "Hello.\n" });
    expect(stderr).toMatch(/first token after \d+ ms\n$/);
    expect(calls.at(-1)?.body).toMatchObject({
      model: "m-2",
      messages: [
        { role: "system", content: "Be brief." },
        { role: "user", content: "Hi" },
      ],
    });
  });

  it("prints an answer as one record with -o json", async () => {
    const { code, stdout } = await heddle(["chat", "Hi", "-o", "json"]);
    expect(code).toBe(0);
    expect(JSON.parse(stdout)).toEqual({
      model: "m-2",
      content: "Hello.",
      finish_reason: "stop",
      usage: USAGE,
      ttft_ms: expect.any(Number),
      // An answer that arrived at once has no rate.
      tokens_per_second: null,
    });
  });

  it("refuses an empty question with 2 and sends nothing", async () => {
    const before = calls.length;
    for (const args of [["chat", " "], ["chat", "-"], ["chat"]]) {
      const stderr = expect.stringContaining("The prompt is missing");
      expect(await heddle(args)).toMatchObject({ code: 2, stdout: "", stderr });
    }
    expect(calls).toHaveLength(before);
  });

  it("takes a prompt from standard input", async () => {
    const child = spawn(process.execPath, [MAIN, "chat", "-"], {
      env: { ...process.env, HEDDLE_ENDPOINT: api.endpoint, HEDDLE_API_KEY: "good" },
      stdio: ["pipe", "ignore", "ignore"],
    });
    child.stdin.end("From a pipe.\n");
    const code = await new Promise((resolve) => child.once("close", resolve));
    expect(code).toBe(0);
    expect(calls.at(-1)?.body).toMatchObject({
      messages: [{ role: "user", content: "From a pipe." }],
    });
  });

  it("refuses a limit out of range with 2", async () => {
    expect(await heddle(["chat", "Hi", "--temperature", "3"])).toMatchObject({
      code: 2,
      stderr: expect.stringContaining('--temperature "3": give a number from 0 to 2'),
    });
  });
});
