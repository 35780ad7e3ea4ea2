import { readFileSync } from "node:fs";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import { parseArgs } from "node:util";
import { exitWithParent } from "@heddle/base/process/exit-with-parent";

/**
 * A process with a master's command line and the routes that `heddle up` uses. SCRIPT selects the
 * phases of its models:
 * - `pull` (the default), `load`,
 * - `fail`: until the tiny profile; `flap`: fails repeatedly, each time for a moment,
 * - `crash`: exits before it is ready; `crash-first`: the first of several masters does.
 */
const { values: flags } = parseArgs({
  strict: false,
  options: {
    "http-port": { type: "string" },
    "bootstrap-key-file": { type: "string" },
    profile: { type: "string" },
    name: { type: "string" },
  },
});
const script = process.env["SCRIPT"] ?? "pull";
const TOTAL_BYTES = 1_000_000;
let polls = 0;

exitWithParent();
process.on("SIGTERM", () => {
  log("stopped");
  process.exit(0);
});
if (script === "crash" || (script === "crash-first" && flags["name"] === "master-1")) {
  process.stderr.write("Error: the disk is on fire\n");
  process.exit(3);
}
createServer((request, response) => void answer(request, response)).listen(
  Number(flags["http-port"]),
  "127.0.0.1",
  () => log("ready"),
);

function log(msg: string, fields: object = {}): void {
  process.stdout.write(`${JSON.stringify({ level: 30, time: 0, msg, ...fields })}\n`);
}

async function answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
  const key = readFileSync(String(flags["bootstrap-key-file"]), "utf8").trim();
  if (request.headers.authorization !== `Bearer ${key}`) {
    const error = { code: "invalid_api_key", message: "This key is unknown.", request_id: "req_1" };
    response.writeHead(401).end(JSON.stringify({ error }));
  } else if (request.method === "GET" && request.url === "/api/v1/models") {
    response.setHeader("content-type", "application/json");
    response.end(JSON.stringify({ object: "list", data: [model()] }));
  } else if (request.method === "POST" && request.url === "/api/v1/models") {
    response.setHeader("content-type", "application/json").end(JSON.stringify(model()));
  } else if (request.method === "DELETE" && request.url?.startsWith("/api/v1/models/")) {
    log("removed", { path: request.url });
    response.writeHead(204).end();
  } else if (request.url === "/api/v1/chat/completions") {
    let body = "";
    for await (const chunk of request) body += chunk;
    if (JSON.parse(body).stream) chat(response);
    else
      response
        .setHeader("content-type", "application/json")
        .end(JSON.stringify({ choices: [{ message: { content: "It lifts the warp." } }] }));
  } else {
    const problem = { code: "not_found", detail: "No such route.", request_id: "req_2" };
    response.writeHead(404).end(JSON.stringify(problem));
  }
}

function model(): object {
  polls++;
  const phase = phaseNow();
  const fails = phase === "failed";
  return {
    id: "FamilyA-1-2B",
    status: phase,
    context_window: 8192,
    backing: `scripted model of the ${flags["profile"]} profile`,
    stand_in: true,
    visibility: "cluster",
    project: null,
    weights: { file: "scripted.gguf" },
    replicas: [
      {
        node: "worker-1",
        phase,
        pulled_bytes: Math.min(polls, 4) * 250_000,
        total_bytes: TOTAL_BYTES,
        message: fails ? "no source could be reached." : "",
      },
    ],
  };
}

function phaseNow(): string {
  if (script === "fail" && flags["profile"] !== "tiny") return "failed";
  if (script === "flap") return polls % 4 === 0 ? "failed" : "loading";
  if (polls > 3) return "ready";
  return script === "load" ? "loading" : "pulling";
}

function chat(response: ServerResponse): void {
  response.writeHead(200, { "content-type": "text/event-stream" });
  const send = (chunk: object) => response.write(`data: ${JSON.stringify(chunk)}\n\n`);
  for (const content of ["It lifts ", "the warp."]) send({ choices: [{ delta: { content } }] });
  send({ choices: [{ delta: {}, finish_reason: "stop" }] });
  send({ choices: [], usage: { prompt_tokens: 9, completion_tokens: 7 } });
  response.end("data: [DONE]\n\n");
}
