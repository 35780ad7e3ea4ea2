#!/usr/bin/env node
// `kubectl heddle COMMAND`: the command line of a cluster that the chart has installed. kubectl itself finds
// it, reads its key and forwards a port, with the rights that the kubeconfig gives.
import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { createServer } from "node:net";
import { dirname, join } from "node:path";
import { connect } from "node:tls";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

const HEDDLE = join(dirname(fileURLToPath(import.meta.url)), "heddle.mjs");
const SELECTOR = "app.kubernetes.io/part-of=heddle,app.kubernetes.io/component=master";
const FORWARD_MS = 30_000;
/** Annotations of a Service whose masters serve HTTPS: their URL, and the Secret with their certificate. */
const ENDPOINT = "heddle.dev/endpoint";
const TLS_SECRET = "heddle.dev/http-tls-secret";
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
  const { name, port, annotations } = await findService(access, flags["--service"]);
  const key =
    process.env.HEDDLE_API_KEY ?? (await readKey(access, flags["--secret"] ?? `${name}-cluster`));
  const secret = annotations[TLS_SECRET];
  const ca = secret && (await readSecret(access, secret, "ca.crt"));
  const forward = spawn("kubectl", [...access, "port-forward", `service/${name}`, `:${port}`], {
    stdio: ["ignore", "pipe", "pipe"],
  });
  const end = () => forward.kill();
  process.once("exit", end);
  let bridge;
  try {
    let local = await forwardedPort(forward);
    if (secret) {
      const { hostname: servername } = new URL(annotations[ENDPOINT]);
      bridge = await openBridge({
        host: "127.0.0.1",
        port: Number(local),
        servername,
        ...(ca && { ca }),
      });
      local = bridge.address().port;
    }
    const env = {
      ...process.env,
      HEDDLE_ENDPOINT: `http://127.0.0.1:${local}`,
      HEDDLE_API_KEY: key,
    };
    return await run([HEDDLE, ...command], env);
  } finally {
    end();
    bridge?.close();
  }
}

/**
 * A port of this machine that leads to the masters by TLS. Their certificate names the Service, which is no
 * name of this machine.
 */
async function openBridge(to) {
  const bridge = createServer((near) => {
    const far = connect(to);
    far.once("error", ({ message }) => {
      process.stderr.write(`kubectl heddle: the masters' certificate or connection: ${message}\n`);
      near.destroy();
    });
    near.once("error", () => far.destroy());
    near.once("close", () => far.destroy());
    near.pipe(far).pipe(near);
  });
  await once(bridge.listen(0, "127.0.0.1"), "listening");
  return bridge;
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
    const { metadata, spec } = named[0];
    return {
      name: metadata.name,
      port: spec.ports[0].port,
      annotations: metadata.annotations ?? {},
    };
  }
  const names = services.map(({ metadata }) => metadata.name).join(", ") || "none";
  const remedy = services.length > 1 ? "Name one with --service." : "Give its --namespace.";
  throw new Error(`the namespace has these masters' Services: ${names}. ${remedy}`);
}

async function readKey(access, secret) {
  const key = await readSecret(access, secret, "bootstrap-key");
  if (key) return key;
  throw new Error(
    `the Secret ${secret} has no bootstrap-key: name another by --secret, or set HEDDLE_API_KEY.`,
  );
}

/** An empty text where the Secret has no such part. */
async function readSecret(access, secret, part) {
  const path = `jsonpath={.data.${part.replace(".", "\\.")}}`;
  const text = await kubectl([...access, "get", "secret", secret, "-o", path]);
  return Buffer.from(text, "base64").toString().trim();
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
