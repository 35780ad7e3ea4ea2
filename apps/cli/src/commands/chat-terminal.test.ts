// holds: cli-chat

import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { fileURLToPath } from "node:url";
import { stripVTControlCharacters } from "node:util";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";

// `heddle chat` in a pseudo-terminal, which `script` of util-linux makes; the cluster is an HTTP server.

const MAIN = fileURLToPath(new URL("../main.ts", import.meta.url));
const HAS_SCRIPT = /util-linux/.test(
  spawnSync("script", ["--version"], { encoding: "utf8" }).stdout ?? "",
);
if (!HAS_SCRIPT) console.log("skipped: the tests in a terminal need `script` of util-linux");

interface Turn {
  readonly role: string;
  readonly content: string;
}

let endpoint: string;
let asked: Turn[][] = [];
let child: ChildProcess;
let output = "";

const server = createServer(async (request, response) => {
  if (request.url === "/api/v1/models") {
    response.end(JSON.stringify({ data: [{ id: "m", status: "ready", replicas: [] }] }));
    return;
  }
  let body = "";
  for await (const chunk of request) body += chunk;
  asked.push((JSON.parse(body) as { messages: Turn[] }).messages);
  const chunk = { choices: [{ delta: { content: `answer ${asked.length}.` } }] };
  response.writeHead(200, { "content-type": "text/event-stream" });
  response.end(`data: ${JSON.stringify(chunk)}\n\ndata: [DONE]\n\n`);
});

beforeAll(async () => {
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  endpoint = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
});
afterEach(() => {
  child.kill("SIGKILL");
});
afterAll(() => server.close());

async function chat(): Promise<void> {
  asked = [];
  output = "";
  const command = `"${process.execPath}" "${MAIN}" chat --endpoint ${endpoint} --api-key k`;
  const env = { ...process.env, TERM: "xterm", HEDDLE_DATA: "/nonexistent" };
  child = spawn("script", ["-qec", command, "/dev/null"], { env, stdio: ["pipe", "pipe", "pipe"] });
  child.stdout?.on("data", (chunk) => {
    output += chunk;
  });
  await shown(/> $/);
}

async function shown(pattern: RegExp): Promise<void> {
  while (!pattern.test(stripVTControlCharacters(output))) {
    if (child.exitCode !== null) throw new Error(`chat ended without ${pattern}: ${output}`);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

const type = (keys: string) => child.stdin?.write(keys);
const lastQuestion = () => asked.at(-1)?.at(-1)?.content;

describe.skipIf(!HAS_SCRIPT)("heddle chat in a terminal", () => {
  it("paste: several lines are one turn, submitted by Enter", async () => {
    await chat();
    type("\x1b[200~first line\nsecond line\nthird\x1b[201~");
    await shown(/third/);
    expect(asked).toEqual([]);
    type("\r");
    await shown(/answer 1\..*> $/s);
    expect(lastQuestion()).toBe("first line\nsecond line\nthird");
  });

  it("paste: unmarked lines that arrive together are one turn too", async () => {
    await chat();
    type("one\rtwo\rthree\r");
    await shown(/answer 1\..*> $/s);
    expect(asked.map((turns) => turns.at(-1)?.content)).toEqual(["one\ntwo\nthree"]);
  });

  it("Up: recalls an earlier turn", async () => {
    await chat();
    type("the question\r");
    await shown(/answer 1\..*> $/s);
    type("\x1b[A");
    await shown(/> the question$/);
    type("\r");
    await shown(/answer 2\..*> $/s);
    expect(lastQuestion()).toBe("the question");
    expect(asked.at(-1)).toHaveLength(3);
  });

  it("commands: /help, /clear and unknown ones are not sent to the model", async () => {
    await chat();
    type("/help\r");
    await shown(/\/clear.*> $/s);
    for (const help of ["/HELP", "/?"]) {
      output = "";
      type(`${help}\r`);
      await shown(/clear the conversation.*> $/s);
    }
    for (const wrong of ["/hlep", "/hlep me", "/Ende", "/"]) {
      output = "";
      type(`${wrong}\r`);
      await shown(/unknown command \/.*clear the conversation.*> $/s);
    }
    output = "";
    type("/clear all\r");
    await shown(/\/clear takes no arguments.*> $/s);
    type("hello\r");
    await shown(/answer 1\..*> $/s);
    type("/CLEAR\r");
    await shown(/cleared.*> $/s);
    type("/etc/hosts is a file?\r");
    await shown(/answer 2\..*> $/s);
    type("//hlep\r");
    await shown(/answer 3\..*> $/s);
    expect(asked.map((turns) => turns.at(-1)?.content)).toEqual([
      "hello",
      "/etc/hosts is a file?",
      "/hlep",
    ]);
    expect(asked[1]).toHaveLength(1);
    type("/exit\r");
    const [code] = await once(child, "exit");
    expect(code).toBe(0);
  });
});
