import { readFileSync } from "node:fs";
import { Command, Option } from "commander";
import { addCluster, type Lazy } from "./cluster-verbs.ts";
import { addJobs } from "./job-verbs.ts";

/**
 * All verbs with their arguments and options. Only commander is loaded here: `lazy` loads a verb's
 * code when it runs, so `--help` starts as fast as Node.
 */
export function makeProgram(lazy: Lazy): Command {
  const program = new Command("heddle")
    .description("One control plane for serving and training language models.")
    .version(readVersion())
    .option("--endpoint <url>", "the cluster's address (else HEDDLE_ENDPOINT, else the local one)")
    .option("--api-key <key>", "the key to show (else HEDDLE_API_KEY, else the local one)")
    .addOption(
      new Option("-o, --output <format>", "how data is printed")
        .choices(["table", "wide", "json", "yaml", "name"])
        .default("table"),
    )
    .configureHelp({ showGlobalOptions: true })
    .exitOverride()
    .hook("preAction", (_, command) => refuseEmptyValues(command));
  addUp(program, lazy);
  addChat(program, lazy);
  addReaders(program, lazy);
  addKeys(program, lazy);
  addCluster(program, lazy);
  addJobs(program, lazy);
  hintAtHelp(program, program.name());
  return program;
}

/** After an error in its arguments each command names its own help. */
function hintAtHelp(command: Command, path: string): void {
  command.showHelpAfterError(`(${path} --help shows how)`);
  for (const each of command.commands) hintAtHelp(each, `${path} ${each.name()}`);
}

/** An empty option or id is a mistake, such as an unset variable of a script. */
function refuseEmptyValues(command: Command): void {
  const [first] = command.registeredArguments;
  if (first?.required && command.args.includes("")) {
    command.error(`heddle: <${first.name()}> "": it needs a value.`);
  }
  for (let at: Command | null = command; at; at = at.parent) {
    for (const option of at.options) {
      const name = option.attributeName();
      if (at.getOptionValueSource(name) !== "cli" || at.getOptionValue(name) !== "") continue;
      command.error(`heddle: ${option.long} "": it needs a value; give one or leave it out.`);
    }
  }
}

function addUp(program: Command, lazy: Lazy): void {
  program
    .command("up")
    .description("run a cluster on this machine: masters, workers, parameter servers")
    .option("--masters <n>", "1, 3 or 5", "1")
    .option("--workers <n>", "workers to run", "1")
    .option("--parameter-servers <n>", "parameter servers to run", "1")
    .option("--port <port>", "the first master's HTTP port", "8080")
    .option("--data <dir>", "where everything is kept (else HEDDLE_DATA, else ~/.heddle)")
    .option(
      "--models-cache <dir>",
      "where weights are kept (else HEDDLE_MODELS_CACHE, else DIR/models)",
    )
    .option("--model <file>", "a GGUF file to serve")
    .option("--profile <name>", "demo (tiny real model), small (0.5B), gpu (all), tiny (noise)")
    .option("--simulate-gpus <spec>", "GPUs that each worker is to pretend to have, as 8xH100-80GB")
    .option("--labels <name=value,...>", "labels of each worker, which jobs may ask for")
    .option("--taints <name,...>", "taints of each worker, which jobs must tolerate")
    .option("--rack <name>", "the rack that this machine is in")
    .option("--fabric <name>", "the fast network that this machine is on")
    .option("--local-ssd-gb <gb>", "local SSD that each worker offers to jobs")
    .option("--io-operations-per-sec <n>", "disk operations per second that each worker offers")
    .option("--network-gbps <gbps>", "network bandwidth that each worker offers")
    .option("--max-tasks <n>", "tasks that each worker takes at a time")
    .option(
      "--artifacts-replica <place>",
      "DIR or s3://BUCKET/PREFIX for copies of what jobs leave",
    )
    .option("--device <device>", "what models run on: cpu, or a GPU's index (else cpu)")
    .option("--plugins <files>", "plugins for training jobs, separated by commas")
    .option("--task-users <range>", "user ids of tasks, as 200000-200999, or own")
    .option("--task-isolation <kind>", "required or optional: whether jobs run unisolated")
    .option("--task-writable <paths>", "what isolated tasks may write to besides their own")
    .option("--tls", "certificates and TLS between the processes")
    .option("--secrets-key-file <file>", "file with keys that encrypt what the masters keep")
    .option("--once", "stop after the self-check; exit 0 if it went well")
    .option("--verbose", "the same as --log-level info")
    .option("--log-level <level>", "the processes' lines to show: debug, info, warn, error", "warn")
    .action(lazy(async () => (await import("./commands/up.ts")).up));
}

function addChat(program: Command, lazy: Lazy): void {
  program
    .command("chat")
    .description("ask a model; without a prompt, talk to it")
    .argument("[prompt]", "the question; `-` reads it from standard input")
    .option("--model <id>", "the model (else the first that is ready)")
    .option("--system <text>", "a system message")
    .option("--max-tokens <n>", "the longest answer, in tokens")
    .option("--temperature <t>", "0 is deterministic; up to 2")
    .action(lazy(async () => (await import("./commands/chat.ts")).chat));
}

function addReaders(program: Command, lazy: Lazy): void {
  const models = program.command("models").description("the models of the cluster");
  models
    .command("list")
    .description("list the models, what backs each and where it runs")
    .action(lazy(async () => (await import("./commands/models.ts")).listModelsCommand));
  models
    .command("pull")
    .description("have a worker pull a model's weights, and wait until it can answer")
    .argument("<id>", "the model")
    .action(lazy(async () => (await import("./commands/models.ts")).pullModel));
  models
    .command("register")
    .description("register a model and the weights that answer for it; repeated, it is the same")
    .argument("<id>", "the model")
    .requiredOption("--source <url>", "its weights, as hf://..., https://... or file://...")
    .option("--replicas <n>", "how many replicas, or every-worker (else 1)")
    .option("--gpus <n>", "GPUs of each replica, placed by the scheduler: 1 (else none is held)")
    .option("--gpu-type <types>", "types of GPU that will do, comma-separated")
    .option("--gpu-memory-gb <gb>", "the least memory of its GPU")
    .action(lazy(async () => (await import("./commands/models.ts")).registerModel));
  models
    .command("remove")
    .description("remove a model, and its replicas where no other model uses them")
    .argument("<id>", "the model")
    .action(lazy(async () => (await import("./commands/models.ts")).removeModel));
  program
    .command("endpoints")
    .description("the addresses that commands may talk to")
    .command("list")
    .description("list them, and which one is used")
    .action(lazy(async () => (await import("./commands/endpoints.ts")).listEndpoints));
  program
    .command("health")
    .description("how the cluster is; exit code 7 when it is not well")
    .action(lazy(async () => (await import("./commands/health.ts")).health));
}

function addKeys(program: Command, lazy: Lazy): void {
  const keys = program.command("keys").description("the API keys of the cluster");
  keys
    .command("create")
    .description("make a key; its text is shown this once")
    .argument("<name>", "whom or what it is for")
    .option("--scopes <list>", "permissions, separated by commas")
    .option("--models <list>", "the models it may call (else all)")
    .action(lazy(async () => (await import("./commands/keys.ts")).createKey));
  keys
    .command("list")
    .description("list the keys")
    .action(lazy(async () => (await import("./commands/keys.ts")).listKeys));
  keys
    .command("rotate")
    .description("make a new key in place of one, which still works for a while")
    .argument("<id>", "the eight characters after hdl_<environment>_")
    .option("--overlap <time>", "how long the old key still works: 0, 15m, 24h, 7d (else 24h)")
    .action(lazy(async () => (await import("./commands/keys.ts")).rotateKey));
  keys
    .command("revoke")
    .description("revoke a key at once")
    .argument("<id>", "the eight characters after hdl_<environment>_")
    .action(lazy(async () => (await import("./commands/keys.ts")).revokeKey));
}

function readVersion(): string {
  const manifest = readFileSync(new URL("../package.json", import.meta.url), "utf8");
  return (JSON.parse(manifest) as { version: string }).version;
}
