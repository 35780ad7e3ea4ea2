// holds: cli-verbs

import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { freePort } from "@heddle/base/testing/free-ports";
import type { Command } from "commander";
import { afterAll, beforeAll, describe, expect, it, vi } from "vitest";
import { makeProgram } from "./program.ts";
import { runCaptured } from "./testing/captured-run.ts";

// Every verb from a user's view: its help, a missing argument, no cluster, a wrong key, an unknown
// id.

const NOWHERE = join(tmpdir(), "heddle-there-is-no-such-directory");

const SPEC_FILE = fileURLToPath(new URL("../../../examples/pipeline.yaml", import.meta.url));

/** Arguments for each verb that calls a cluster. */
const ASKING: Readonly<Record<string, readonly string[]>> = {
  chat: ["Hi"],
  health: [],
  top: ["--once"],
  "jobs list": [],
  "jobs get": ["job_x"],
  "jobs logs": ["job_x"],
  "jobs watch": ["job_x"],
  "jobs wait": ["job_x"],
  "jobs artifacts": ["job_x"],
  "jobs metrics": ["job_x"],
  "jobs explain": ["job_x"],
  "jobs submit": ["--name", "x", "--command", "true"],
  "jobs cancel": ["job_x"],
  "jobs suspend": ["job_x"],
  "jobs resume": ["job_x"],
  "pipelines submit": [SPEC_FILE],
  "pipelines get": ["job_x"],
  "pipelines graph": [SPEC_FILE],
  "pipelines list": [],
  "pipelines cancel": ["job_x"],
  "pipelines blocks": [],
  "models list": [],
  "models pull": ["x"],
  "models register": ["x", "--source", "builtin://tiny"],
  "models remove": ["x"],
  "models update": ["x", "--min", "1", "--max", "2"],
  "keys create": ["x"],
  "keys list": [],
  "keys rotate": ["x"],
  "keys revoke": ["x"],
  "auth status": [],
  "roles list": [],
  "roles get": ["x"],
  "roles set": ["x", "--permissions", "jobs:read"],
  "roles remove": ["x"],
  "roles policy": [],
  "service-accounts list": [],
  "service-accounts get": ["x"],
  "service-accounts create": ["x"],
  "service-accounts disable": ["x"],
  "service-accounts enable": ["x"],
  "service-accounts remove": ["x"],
  "bindings list": [],
  "bindings add": ["user", "x", "viewer"],
  "bindings remove": ["user", "x", "viewer"],
  "secrets list": [],
  "secrets get": ["x"],
  "secrets set": ["x", "--from-file", "package.json"],
  "secrets remove": ["x"],
  usage: [],
  "limits list": [],
  "limits get": ["key", "x"],
  "limits set": ["key", "x"],
  "events list": [],
  "events follow": [],
  "events log": ["TEST"],
  "events keys": [],
  "events shred": ["alice"],
  "events cosign": ["1", "--signatures", SPEC_FILE],
  "events export": [],
  "webhooks create": ["https://hooks.example.com/x"],
  "webhooks list": [],
  "webhooks remove": ["x"],
  "webhooks rotate": ["x"],
  "webhooks retry": ["x"],
  "files upload": ["package.json"],
  "files list": [],
  "files download": ["x"],
  "files delete": ["x"],
  "batches create": ["file-x"],
  "batches list": [],
  "batches get": ["x"],
  "batches cancel": ["x"],
  "workers list": [],
  "workers get": ["x"],
  "workers drain": ["x"],
  "workers resume": ["x"],
  "workers revoke": ["x"],
  "queues list": [],
  "plugins list": [],
  "plugins inspect": ["x"],
  "queues set": ["x"],
  "projects list": [],
  "projects get": ["x"],
  "projects set": ["x"],
  "cluster status": [],
  "cluster members": [],
  "cluster metrics": [],
  "cluster resources": [],
  "cluster add": ["x", "--address", "127.0.0.1:9"],
  "cluster join-token": ["--role", "worker", "--name", "x"],
  "cluster enroll": [],
  "cluster remove": ["x"],
  "cluster transfer": ["x"],
  "cluster snapshot": [],
  "cluster backup": [],
  "cluster state": ["--at", "1"],
};
/** The commands that call no cluster, or call it without a key. */
const WITHOUT_CLUSTER = [
  "up",
  "completion",
  "doctor",
  "auth login",
  "auth logout",
  "auth token",
  "context list",
  "context use",
  "context set",
  "context remove",
  "endpoints list",
  "events verify",
  "plugins run",
  "config validate",
  "config schema",
  "config example",
  "cluster restore",
  "cluster recover",
];

const program = makeProgram(() => async () => {});

/** Each verb by its words, such as `jobs list`. */
function verbsOf(command: Command, path: readonly string[] = []): [string, Command][] {
  if (command.commands.length === 0) return [[path.join(" "), command]];
  return command.commands.flatMap((each) => verbsOf(each, [...path, each.name()]));
}

async function heddle(words: string, args: readonly string[], asked: string, key: string) {
  vi.stubEnv("HEDDLE_DATA", NOWHERE);
  vi.stubEnv("HEDDLE_ENDPOINT", asked);
  vi.stubEnv("HEDDLE_API_KEY", key);
  try {
    return await runCaptured([...words.split(" "), ...args]);
  } finally {
    vi.unstubAllEnvs();
  }
}

/** How each call is refused, by its name. */
const REFUSALS: Readonly<Record<string, readonly [status: number, code: string, detail: string]>> =
  {
    "Bearer good": [404, "not_found", "Nothing has the id x."],
    "Bearer weak": [403, "permission_denied", "The API key weak lacks the permission x:y."],
  };
const UNKNOWN = [401, "invalid_api_key", "Incorrect API key provided."] as const;

const server = createServer((request, response) => {
  const [status, code, detail] = REFUSALS[request.headers.authorization ?? ""] ?? UNKNOWN;
  response.writeHead(status, { "content-type": "application/problem+json" });
  response.end(JSON.stringify({ code, detail, request_id: "req_7" }));
});
/** Another program that listens at the endpoint. */
const otherServer = createServer((_request, response) => {
  response.writeHead(200, { "content-type": "text/html" }).end("<html>Welcome to nginx!</html>");
});
let endpoint = "";
beforeAll(async () => {
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  await new Promise<void>((resolve) => otherServer.listen(0, "127.0.0.1", resolve));
  endpoint = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
});
afterAll(() => {
  for (const each of [server, otherServer]) {
    each.closeAllConnections();
    each.close();
  }
});

describe("every verb", () => {
  it("is covered by this test", () => {
    const known = [...Object.keys(ASKING), ...WITHOUT_CLUSTER];
    expect(
      verbsOf(program)
        .map(([words]) => words)
        .sort(),
    ).toEqual(known.sort());
  });

  it("--help: describes the verb, and each argument and option", () => {
    for (const [words, command] of verbsOf(program)) {
      const parts = [command, ...command.registeredArguments, ...command.options];
      for (const part of parts) expect(descriptionOf(part), words).not.toBe("");
      expect(command.helpInformation(), words).toMatch(/Global Options:[\s\S]*--output <format>/);
    }
  });

  it("a missing argument: is named, with the command that shows the help", async () => {
    for (const [words, command] of verbsOf(program)) {
      const [argument] = command.registeredArguments.filter(({ required }) => required);
      const [option] = command.options.filter(({ mandatory }) => mandatory);
      if (!argument && !option) continue;
      let said = "";
      command.exitOverride().configureOutput({
        writeErr: (text) => {
          said += text;
        },
      });
      await expect(program.parseAsync(words.split(" "), { from: "user" })).rejects.toThrow();
      expect(said).toContain(option ? option.flags : argument?.name());
      expect(said).toContain(`(see heddle ${words} --help)`);
    }
  });

  it("without a cluster: exits with 7, names the address and the start command", async () => {
    const closed = `http://127.0.0.1:${await freePort()}`;
    const stderr = `error No answer from ${closed} (ECONNREFUSED; the address is from HEDDLE_ENDPOINT).
fix Check that the cluster is running: \`heddle up\` starts one, --endpoint selects another.
`;
    for (const [words, args] of Object.entries(ASKING)) {
      const ended = await heddle(words, args, closed, "good");
      expect(ended, words).toEqual({ code: 7, stdout: "", stderr });
    }
  });

  it("with a wrong key: exits with 4, and says where to get a valid one", async () => {
    for (const [words, args] of Object.entries(ASKING)) {
      if (words === "health") continue;
      const { code, stdout, stderr } = await heddle(words, args, endpoint, "wrong");
      expect({ code, stdout }, words).toEqual({ code: 4, stdout: "" });
      expect(stderr, words).toMatch(
        /^error Incorrect API key provided\.\nfix Give a key with --api-key .*\nrequest req_7\n$/,
      );
    }
  });

  it("without the permission: exits with 4, names it and who gives it", async () => {
    for (const [words, args] of Object.entries(ASKING)) {
      if (words === "health") continue;
      const { code, stdout, stderr } = await heddle(words, args, endpoint, "weak");
      expect({ code, stdout }, words).toEqual({ code: 4, stdout: "" });
      expect(stderr, words).toMatch(
        /^error The API key weak lacks the permission x:y\.\nfix Ask an administrator .*\nrequest req_7\n$/,
      );
    }
  });

  it("at the address of another program: fails, and says that it is not Heddle", async () => {
    const { port } = otherServer.address() as AddressInfo;
    for (const [words, args] of Object.entries(ASKING)) {
      const ended = await heddle(words, args, `http://127.0.0.1:${port}`, "good");
      expect(ended.code, words).toBeGreaterThan(0);
      expect(ended.stdout, words).toBe("");
      expect(ended.stderr, words).toMatch(/^error .*Heddle/);
    }
  });

  it("with -o json: a refusal is on standard error, and standard output is empty", async () => {
    for (const [words, args] of Object.entries(ASKING)) {
      const { code, stdout } = await heddle(words, [...args, "-o", "json"], endpoint, "weak");
      expect({ code, stdout }, words).toEqual({ code: 4, stdout: "" });
    }
  });

  it("an unknown option or a further argument: exits with 2, and sends nothing", async () => {
    const commands = new Map(verbsOf(program));
    for (const [words, args] of Object.entries(ASKING)) {
      const takesMore = commands.get(words)?.registeredArguments.some(({ variadic }) => variadic);
      for (const more of ["--no-such-option", ...(takesMore ? [] : ["x"])]) {
        const ended = await heddle(words, [...args, more, "y", "z"], endpoint, "good");
        expect(ended, `${words} ${more}`).toMatchObject({ code: 2, stdout: "" });
        expect(ended.stderr).toContain(`(see heddle ${words} --help)`);
      }
    }
  });

  it("an unknown id: exits with 3, and names the command that lists the valid ones", async () => {
    const gets = ["jobs", "pipelines", "plugins", "projects", "roles", "secrets", "workers"];
    const others = ["keys revoke", "files delete", "webhooks remove", "cluster remove"];
    for (const words of [...gets.map(getting), ...others]) {
      const { code, stderr } = await heddle(words, ["x"], endpoint, "good");
      expect(code, words).toBe(3);
      const list = words.startsWith("cluster") ? "cluster members" : words.replace(/ .*/, " list");
      expect(stderr).toContain(`error Nothing has the id x.\nfix \`heddle ${list}\` lists`);
    }
  });

  it("an empty id: exits with 2 and sends nothing", async () => {
    expect(await heddle("jobs get", [""], endpoint, "good")).toEqual({
      code: 2,
      stdout: "",
      stderr: 'heddle: <job> "": the value is empty.\n(see heddle jobs get --help)\n',
    });
  });
});

const getting = (noun: string) => (noun === "plugins" ? "plugins inspect" : `${noun} get`);

function descriptionOf(part: Pick<Command, "description"> | { readonly description: string }) {
  return typeof part.description === "function" ? part.description() : part.description;
}
