import { dirname, extname, isAbsolute, resolve } from "node:path";
import { text as readText } from "node:stream/consumers";
import { AppError } from "@heddle/base/errors";
import { readFlagFile } from "@heddle/base/flag-file";
import { isJsonObject } from "@heddle/base/json-object";
import type { JobSpec } from "@heddle/contracts/api/job-spec";
import type { Command } from "commander";
import { type Document, parseAllDocuments } from "yaml";

/** Maximum characters of a spec; larger data belongs into files and images. */
const MAX_SPEC_CHARACTERS = 4_194_304;

/** Characters of a generated name that come from the program's. */
const MAX_PREFIX = 40;

interface SpecFlags {
  readonly name?: string;
  readonly command?: string;
  readonly image?: string;
  readonly project?: string;
  readonly queue?: string;
  readonly tasks?: string;
  readonly gpus?: string;
  readonly cpus?: string;
  readonly memoryGb?: string;
  readonly priority?: string;
}

/** The spec of a file, of standard input or of flags alone; flags override the file. */
export async function readJobSpec(command: Command): Promise<JobSpec> {
  const [file] = command.args;
  const flags = command.opts() as SpecFlags;
  const spec: Record<string, unknown> =
    file === undefined ? {} : withPaths(await readSpecFile(file, "job"), file);
  if (flags.name !== undefined) delete spec["generate_name"];
  const own = given({
    ...nameOf(flags, file),
    command: flags.command,
    container_image: flags.image,
    project: flags.project,
    queue: flags.queue,
    tasks: numberOf("--tasks", flags.tasks),
  });
  const resources = given({
    gpu_count: numberOf("--gpus", flags.gpus),
    cpu_cores: numberOf("--cpus", flags.cpus),
    memory_gb: numberOf("--memory-gb", flags.memoryGb),
    priority: numberOf("--priority", flags.priority),
  });
  if (file === undefined && flags.command === undefined && flags.image === undefined) {
    const message = "The job spec is missing: give a file, or --command and perhaps --name.";
    throw new AppError("missing_required_parameter", message);
  }
  const all = { ...(spec["resources"] as object | undefined), ...resources };
  const merged = { ...spec, ...own, ...(Object.keys(all).length > 0 ? { resources: all } : {}) };
  // The cluster validates the whole spec and reports every fault at once.
  return merged as unknown as JobSpec;
}

/** `--name`, also instead of a file's prefix; a job of flags alone is named after its program. */
function nameOf({ name, command, image }: SpecFlags, file: string | undefined) {
  if (name !== undefined) return { name };
  return file === undefined ? { generate_name: `${programIn(command ?? image ?? "")}-` } : {};
}

/** The first word that is no variable, without its folders and tag: `python3` of `A=1 /bin/python3 x`. */
function programIn(line: string): string {
  const word = line.split(/\s+/).find((part) => part !== "" && !/^\w+=/.test(part)) ?? "";
  const [, program = "job"] = /([\w.-]+)(?:[:@][^/]*)?\W*$/.exec(word) ?? [];
  return program.slice(0, MAX_PREFIX);
}

/** Makes the paths of training data absolute; they are relative to the spec file. */
function withPaths(spec: Record<string, unknown>, file: string): Record<string, unknown> {
  const { config } = spec;
  if (typeof config !== "object" || config === null) return spec;
  const folder = file === "-" ? process.cwd() : dirname(resolve(file));
  const absolute = (path: unknown): unknown =>
    typeof path === "string" && path !== "" && !isAbsolute(path) ? resolve(folder, path) : path;
  const { data, tokenizer } = config as { readonly data?: unknown; readonly tokenizer?: unknown };
  const paths = Array.isArray(data) ? data.map(absolute) : absolute(data);
  const hasPath = typeof tokenizer === "object" && tokenizer !== null && "path" in tokenizer;
  return {
    ...spec,
    config: {
      ...config,
      ...("data" in config ? { data: paths } : {}),
      ...(hasPath ? { tokenizer: { ...tokenizer, path: absolute(tokenizer.path) } } : {}),
    },
  };
}

function given(values: Record<string, unknown>): Record<string, unknown> {
  return Object.fromEntries(Object.entries(values).filter(([, value]) => value !== undefined));
}

function numberOf(flag: string, text: string | undefined): number | undefined {
  if (text === undefined) return undefined;
  if (text.trim() !== "" && Number.isFinite(Number(text))) return Number(text);
  throw new AppError("invalid_value", `${flag} "${text}": give a number.`);
}

/** The fields in a YAML or JSON file, or on standard input. */
export async function readSpecFile(file: string, what: string): Promise<Record<string, unknown>> {
  return parseSpec(await readSource(file), file, what);
}

async function readSource(file: string): Promise<string> {
  if (file === "-") return await readText(process.stdin);
  return readFlagFile("the spec", file, "a YAML or JSON file, or - for standard input");
}

/** JSON is YAML too; a file named .json is JSON. Throws with the line of a syntax error. */
function parseSpec(text: string, file: string, what: string): Record<string, unknown> {
  const refuse = (why: string): never => {
    throw new AppError("invalid_value", `${file === "-" ? "standard input" : file}: ${why}`);
  };
  if (text.length > MAX_SPEC_CHARACTERS) refuse(`more than ${MAX_SPEC_CHARACTERS} characters.`);
  // YAML accepts what JSON does not, such as a comma after the last field.
  if (extname(file).toLowerCase() === ".json") {
    try {
      JSON.parse(text);
    } catch (error) {
      refuse(`it is not JSON: ${(error as Error).message}. Fix it, or name a YAML file .yaml.`);
    }
  }
  const documents: readonly Document[] = [...parseAllDocuments(text, { prettyErrors: true })];
  if (documents.length > 1) {
    refuse(`it holds ${documents.length} documents (parted by \`---\`): give one ${what} a file.`);
  }
  const [document] = documents;
  if (!document) return refuse(`it is empty: expected the fields of one ${what}.`);
  const [fault] = document.errors;
  if (fault) refuse(fault.message.trim());
  const value: unknown = document.toJS();
  if (!isJsonObject(value)) {
    return refuse(`expected the fields of one ${what}, such as \`name: hello\`.`);
  }
  return { ...value };
}
