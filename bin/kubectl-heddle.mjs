#!/usr/bin/env node
// `kubectl heddle COMMAND`: the command line of a cluster that the chart has installed. kubectl itself finds
// it, reads its key and forwards a port, with the rights that the kubeconfig gives.
import { execFile, spawn } from "node:child_process";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

const HEDDLE = join(dirname(fileURLToPath(import.meta.url)), "heddle.mjs");
const SELECTOR = "app.kubernetes.io/part-of=heddle,app.kubernetes.io/component=master";
const FORWARD_MS = 30_000;
const USAGE = `Usage: kubectl heddle [flags] COMMAND ...
Runs a command of heddle with a cluster that the chart has installed.
  -n, --namespace NAME   where the release is; that of the context by default
  --context NAME, --kubeconfig FILE   as of kubectl
  --service NAME         the masters' Service, where a namespace has several
  --secret NAME          the Secret with bootstrap-key; SERVICE-cluster by default
HEDDLE_API_KEY, if set, is used in place of the Secret.
`;

const ALIASES = { "-n": "--namespace" };
const OWN = ["--service", "--secret"];
const OF_KUBECTL = ["--namespace", "--context", "--kubeconfig"];

try {
  process.exitCode = await main(process.argv.slice(2));
} catch (error) {
  process.stderr.write(`kubectl heddle: ${error.message}\n`);
  process.exitCode = 1;
}

async function main(given) {
  const { flags, command } = parse(given);
  if (command.length === 0 || command[0] === "--help") {
    process.stdout.write(USAGE);
    return 0;
  }
  const access = OF_KUBECTL.flatMap((name) => (flags[name] ? [name, flags[name]] : []));
  const { name, port } = await findService(access, flags["--service"]);
  const key =
    process.env.HEDDLE_API_KEY ?? (await readKey(access, flags["--secret"] ?? `${name}-cluster`));
  const forward = spawn("kubectl", [...access, "port-forward", `service/${name}`, `:${port}`], {
    stdio: ["ignore", "pipe", "pipe"],
  });
  const end = () => forward.kill();
  process.once("exit", end);
  try {
    const local = await forwardedPort(forward);
    const env = {
      ...process.env,
      HEDDLE_ENDPOINT: `http://127.0.0.1:${local}`,
      HEDDLE_API_KEY: key,
    };
    return await run([HEDDLE, ...command], env);
  } finally {
    end();
  }
}

/** The flags before the command; all others are the command's. */
function parse(given) {
  const flags = {};
  const rest = [...given];
  while (rest[0]?.startsWith("-") && rest[0] !== "--help") {
    const [word, value] = rest.shift().split(/=(.*)/s, 2);
    const name = ALIASES[word] ?? word;
    if (![...OWN, ...OF_KUBECTL].includes(name)) {
      throw new Error(`${word} is not known; flags of a command go behind it.\n${USAGE}`);
    }
    flags[name] = value ?? rest.shift();
    if (!flags[name]) throw new Error(`${word} needs a value.`);
  }
  return { flags, command: rest };
}

async function kubectl(args) {
  try {
    return (await promisify(execFile)("kubectl", args, { maxBuffer: 2 ** 24 })).stdout;
  } catch (error) {
    if (error.code === "ENOENT") throw new Error("kubectl is not on the PATH.");
    throw new Error(error.stderr?.trim() || error.message);
  }
}

async function findService(access, wanted) {
  const list = await kubectl([...access, "get", "services", "-l", SELECTOR, "-o", "json"]);
  const services = JSON.parse(list).items.filter(({ spec }) => spec.clusterIP !== "None");
  const named = services.filter(({ metadata }) => !wanted || metadata.name === wanted);
  if (named.length === 1) {
    return { name: named[0].metadata.name, port: named[0].spec.ports[0].port };
  }
  const names = services.map(({ metadata }) => metadata.name).join(", ") || "none";
  const remedy = services.length > 1 ? "Name one with --service." : "Give its --namespace.";
  throw new Error(`the namespace has these masters' Services: ${names}. ${remedy}`);
}

async function readKey(access, secret) {
  const path = "jsonpath={.data.bootstrap-key}";
  const text = await kubectl([...access, "get", "secret", secret, "-o", path]);
  if (text) return Buffer.from(text, "base64").toString().trim();
  throw new Error(
    `the Secret ${secret} has no bootstrap-key: name another by --secret, or set HEDDLE_API_KEY.`,
  );
}

/** Rejects where kubectl ends before it forwards, or takes too long. */
function forwardedPort(forward) {
  return new Promise((resolve, reject) => {
    let out = "";
    let faults = "";
    const late = setTimeout(
      () => reject(new Error("kubectl port-forward says nothing.")),
      FORWARD_MS,
    );
    forward.stderr.on("data", (text) => {
      faults += text;
    });
    forward.stdout.on("data", (text) => {
      out += text;
      const port = /Forwarding from 127\.0\.0\.1:(\d+)/.exec(out)?.[1];
      if (port) resolve(port);
    });
    forward.once("error", reject);
    forward.once("close", (code) =>
      reject(new Error(faults.trim() || `port-forward ended with ${code}.`)),
    );
    forward.stdout.once("close", () => clearTimeout(late));
  });
}

function run(args, env) {
  return new Promise((resolve, reject) => {
    const child = spawn(process.execPath, args, { stdio: "inherit", env });
    // Ctrl-C reaches the child too, which then ends by itself.
    for (const signal of ["SIGINT", "SIGTERM"]) process.on(signal, () => child.kill(signal));
    child.once("error", reject);
    child.once("close", (code) => resolve(code ?? 1));
  });
}
