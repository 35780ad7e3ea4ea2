import { existsSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { FIRST_QUESTION } from "@heddle/contracts/catalog";
import { hasFailed, isReady, type ListedModel, modelFailure } from "../http/model-list.ts";
import { type Terminal, visibleWidth } from "../output/terminal.ts";
import type { ClusterSecrets } from "./data-directory.ts";
import type { UpOptions } from "./options.ts";
import { LOOPBACK } from "./ports.ts";

interface StartFacts {
  readonly options: UpOptions;
  /** The running masters with their HTTP ports; the example commands name the first. */
  readonly masters: readonly { readonly name: string; readonly http: number }[];
  readonly secrets: ClusterSecrets;
  readonly models: readonly ListedModel[];
  /** The model in the example commands; absent if none is ready. */
  readonly model: string | undefined;
  /** Which model cannot answer and what answers instead; absent if all is as requested. */
  readonly notice?: string | undefined;
  /** True if the data directory is the CLI's default. */
  readonly dataIsDefault: boolean;
  /** Opens the console with a session, once. */
  readonly signInLink?: string | undefined;
}

/** Undefined in an installed package, where `heddle` is a command and the OpenAI SDK is absent. */
const CLONE = cloneAround(dirname(fileURLToPath(import.meta.url)));

/** The command that starts a cluster here, to be followed by flags. */
export const START_COMMAND = CLONE === undefined ? "heddle up" : "npm start --";

const ONCE_IS_OVER = "The cluster stops now because of --once. Omit --once to keep it running.";

/** The start table: addresses, models, the key, and example commands. */
export function startTable(facts: StartFacts, out: Terminal): string {
  const { options, masters, secrets } = facts;
  const bold = (text: string) => out.paint("bold", text);
  const rows: [string, string][] = [
    ...masters.map(({ name, http }): [string, string] => [
      options.masters > 1 ? `API (${name})` : "API",
      `http://${LOOPBACK}:${http}/api/v1`,
    ]),
    ...consoleRows(facts, out),
    ["processes", processes(options)],
    ...(options.simulatedGpus
      ? [["GPUs", `${options.simulatedGpus} on each worker, simulated`] as [string, string]]
      : []),
    ["data", options.dataDir],
    secrets.isNew
      ? [
          "API key",
          `${bold(secrets.apiKey)}   (shown only once; stored in ${secrets.bootstrapKeyFile})`,
        ]
      : ["API key", `kept in ${secrets.bootstrapKeyFile}`],
  ];
  const sections = [
    bold(options.once ? "The self-check passed" : "Heddle is up"),
    columns(rows),
    modelTable(facts, out),
    ...(options.once ? [ONCE_IS_OVER] : []),
    ...(options.once || facts.model === undefined ? [] : [tryTable(facts, facts.model, out)]),
  ];
  return `\n${sections.join("\n\n")}\n\n`;
}

/** The console is in a running cluster alone. */
function consoleRows(facts: StartFacts, out: Terminal): [string, string][] {
  const { options, masters, signInLink } = facts;
  if (options.once || masters[0] === undefined) return [];
  const address = `http://${LOOPBACK}:${masters[0].http}/console/`;
  if (signInLink === undefined) return [["console", address]];
  return [
    [
      "console",
      `${out.paint("bold", signInLink)}   (signs in once, within an hour; later: ${address})`,
    ],
  ];
}

function processes(options: UpOptions): string {
  return [
    plural(options.masters, "master"),
    plural(options.workers, "worker"),
    ...(options.parameterServers > 0 ? [plural(options.parameterServers, "parameter server")] : []),
  ].join(", ");
}

function plural(count: number, noun: string): string {
  return `${count} ${noun}${count === 1 ? "" : "s"}`;
}

/** Models with the same backing, or the same failure, share a row. */
function modelTable({ models, notice }: StartFacts, out: Terminal): string {
  const groups = Map.groupBy(models, (model) => answerText(model, models, out).join("\n    "));
  const lines = [
    ...(notice === undefined ? [] : [`  ${out.paint("yellow", notice)}`]),
    ...[...groups].map(([text, group]) => `  ${group.map(({ id }) => id).join(", ")}\n    ${text}`),
  ];
  const listed = groups.size === 0 ? [...lines, "  none yet"] : lines;
  return [out.paint("bold", "Models and their weights"), ...listed].join("\n");
}

/** What answers for the model; if nothing does, why, and which models do answer. */
function answerText(model: ListedModel, models: readonly ListedModel[], out: Terminal): string[] {
  const { backing, standIn, replicas } = model;
  if (hasFailed(model)) {
    const ready = models.filter(isReady).map(({ id }) => id);
    const instead = ready.length > 0 ? `These answer: ${ready.join(", ")}.` : "No model answers.";
    const failed = out.paint("red", "FAILED:");
    return [`${failed} ${modelFailure(model)}. ${instead}`, `Weights: ${backing}`];
  }
  const answer = standIn ? `${backing} ${out.paint("yellow", "(a stand-in)")}` : backing;
  if (isReady(model)) return [answer];
  const phases = [...new Set(replicas.map(({ phase }) => phase))].join(", ");
  return [answer, out.paint("yellow", `not ready yet: ${phases || "no replica"}`)];
}

function tryTable(facts: StartFacts, model: string, out: Terminal): string {
  const commands = tryCommands(facts, model);
  const lines = Object.entries(commands).map(
    ([name, command]) =>
      `  ${out.paint("dim", `# ${name}`)}\n  ${command.replaceAll("\n", "\n  ")}`,
  );
  return `${out.paint("bold", "Try it, in another terminal")}\n${lines.join("\n\n")}`;
}

/** Commands that work when pasted into any POSIX shell on this machine. */
function tryCommands(
  facts: Pick<StartFacts, "options" | "masters" | "secrets" | "dataIsDefault">,
  model: string,
): Readonly<Record<string, string>> {
  const base = `http://${LOOPBACK}:${facts.masters[0]?.http}/api/v1`;
  const key = `$(cat ${quote(facts.secrets.bootstrapKeyFile)})`;
  const messages = [{ role: "user", content: FIRST_QUESTION }];
  // A small model that samples freely may continue until its context is full.
  const body = JSON.stringify({ model, messages, temperature: 0, max_tokens: 64 });
  const curl = `curl ${base}/chat/completions -H "Authorization: Bearer ${key}" -H "Content-Type: application/json" -d ${quote(body)}`;
  const data = facts.dataIsDefault ? "" : `HEDDLE_DATA=${quote(facts.options.dataDir)} `;
  const chat = `chat --model ${quote(model)} --temperature 0 --max-tokens 64 ${quote(FIRST_QUESTION)}`;
  if (CLONE === undefined) return { curl, CLI: `${data}heddle ${chat}` };
  const script = [
    'import OpenAI from "openai";',
    `const client = new OpenAI({ baseURL: ${JSON.stringify(base)}, apiKey: process.env.HEDDLE_API_KEY });`,
    `const answer = await client.chat.completions.create(${body});`,
    "console.log(answer.choices[0].message.content);",
  ].join(" ");
  return {
    curl,
    Node: `(cd ${quote(CLONE)} && HEDDLE_API_KEY="${key}" node --input-type=module -e ${quote(script)})`,
    CLI: `(cd ${quote(CLONE)} && ${data}npm run --silent heddle -- ${chat})`,
  };
}

/** The repository that holds the directory, however deep: what is bundled lies elsewhere than its source. */
function cloneAround(directory: string): string | undefined {
  if (existsSync(join(directory, "tools", "setup.mjs"))) return directory;
  const parent = dirname(directory);
  return parent === directory ? undefined : cloneAround(parent);
}

/** Quotes the text as one word of a POSIX shell. */
function quote(text: string): string {
  return /^[\w./:@-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}

function columns(rows: readonly [string, string][]): string {
  const width = Math.max(0, ...rows.map(([left]) => visibleWidth(left)));
  return rows.map(([left, right]) => `  ${left.padEnd(width)}  ${right}`).join("\n");
}
